// Secrets in the dashboard, in a real browser, against a real server with real tasks: make e2e-web.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { accessible, Browser, Server, shots } from "./world.mjs";

let server;
let browser;

before(async () => {
  server = await Server.start();
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
});
afterEach(async () => {
  for (const context of browser.browser.contexts()) await context.close();
  browser.expected.length = 0;
  browser.clean();
});

const value = "hf_e2e-secret-value-0123";
const lines = "-----BEGIN KEY-----\nline one of the key\n-----END KEY-----\n";
const sizes = [
  { scheme: "light", width: 1280, height: 900 },
  { scheme: "dark", width: 390, height: 844 },
];

/** Looks at a page as it is: nothing serious for axe, no sideways scrolling, a screenshot. */
async function look(page, name, { scheme, width }) {
  await accessible(page);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 1, `${name} at ${width} px is ${wide} px too wide`);
  await page.screenshot({ path: join(shots, `${name}-${scheme}-${width}.png`) });
}

test("a secret is set, given to a task as variable and file, which do not print it, and deleted", async () => {
  const page = await browser.page(server);
  const sent = [];
  page.on("request", (r) => r.method() !== "GET" && sent.push(`${r.method()} ${new URL(r.url()).pathname}`));
  await page.goto(`${server.url}/settings`);
  const region = page.getByRole("region", { name: "Secrets of project default" });
  await region.getByText("No secrets.").waitFor();
  await region.getByRole("button", { name: "New secret" }).click();
  const dialog = page.getByRole("dialog");
  // By keyboard: the name has the focus, and Enter sends.
  await dialog.getByLabel("Name").and(page.locator(":focus")).waitFor();
  await page.keyboard.type("MUSTER_TOKEN");
  await dialog.getByLabel("Value", { exact: true }).fill(value);
  browser.expected.push(/400/);
  await page.keyboard.press("Enter");
  await dialog.getByRole("alert").getByText("MUSTER_TOKEN is not a name of a secret").waitFor();
  assert.equal(await dialog.getByLabel("Value", { exact: true }).inputValue(), "");
  await dialog.getByLabel("Name").fill("HF_TOKEN");
  await dialog.getByLabel("Value", { exact: true }).fill(value);
  await page.keyboard.press("Enter");
  await region.getByRole("cell", { name: "HF_TOKEN", exact: true }).waitFor();
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(sent, ["MUSTER_TOKEN", "HF_TOKEN"].map((name) => `PUT /api/v1/projects/default/secrets/${name}`));
  assert.equal(await page.evaluate((v) => document.documentElement.outerHTML.includes(v) || JSON.stringify({ ...localStorage, ...sessionStorage }).includes(v), value), false);

  // Several lines come from a file.
  await region.getByRole("button", { name: "New secret" }).click();
  await dialog.getByLabel("Name").fill("DEPLOY_KEY");
  await page.locator("input[type=file]").setInputFiles({ name: "id_ed25519", mimeType: "text/plain", buffer: Buffer.from(lines) });
  await dialog.getByRole("button", { name: "Set the secret" }).click();
  await region.getByRole("cell", { name: "DEPLOY_KEY", exact: true }).waitFor();
  await dialog.waitFor({ state: "detached" });

  await page.goto(`${server.url}/submit`);
  const editor = page.getByTestId("editor").locator(".cm-content");
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText('name: uses # a comment\nkind: script\nrun: |\n  echo "token $HF_TOKEN"; echo "${#HF_TOKEN} bytes"; sha256sum keys/deploy; cat keys/deploy\n');
  await page.getByRole("button", { name: "Secrets" }).click();
  await dialog.getByLabel("Variable HF_TOKEN", { exact: true }).check();
  await dialog.getByLabel("File with DEPLOY_KEY", { exact: true }).check();
  await dialog.getByLabel("Path of the file with DEPLOY_KEY").fill("keys/deploy");
  await dialog.getByRole("button", { name: "Write it to the spec" }).click();
  await page.getByTestId("plan").getByText("can start now").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/\d+/);
  const id = /jobs\/(\d+)/.exec(page.url())[1];
  await server.job(id, "succeeded");
  await page.goto(`${server.url}/tasks/${id}.0?tab=log`);
  const log = page.locator("#log-lines");
  await log.getByText("token ***").waitFor();
  await log.getByText(`${value.length} bytes`).waitFor();
  await log.getByText(new RegExp(`^${sha256(lines)}`)).waitFor();
  assert.doesNotMatch(await log.innerText(), /line one/);

  await page.goto(`${server.url}/settings`);
  await region.getByRole("button", { name: "Set a new value of HF_TOKEN" }).click();
  await dialog.getByLabel("Value", { exact: true }).fill(`${value}-2`);
  await dialog.getByRole("button", { name: "Set the secret" }).click();
  await region.getByRole("row", { name: /HF_TOKEN.* 2 / }).waitFor();
  await region.getByRole("button", { name: "Delete DEPLOY_KEY" }).click();
  await page.getByRole("button", { name: "Delete the secret" }).click();
  await region.getByRole("cell", { name: "DEPLOY_KEY", exact: true }).waitFor({ state: "detached" });
  assert.deepEqual((await server.api("GET", "/projects/default/secrets")).secrets.map((s) => [s.name, s.version, s.updated_by]), [["HF_TOKEN", 2, "first admin"]]);
});

const sha256 = (text) => createHash("sha256").update(text).digest("hex");

test("keys that may not manage secrets are offered none, and those that submit choose among their names", async () => {
  await server.api("PUT", "/projects/default/secrets/NAMED", { value, workers: ["trusted"] });
  for (const role of ["viewer", "submitter"]) {
    const made = await server.api("POST", "/keys", { name: role, role, project: "default" });
    const page = await browser.page(server, { token: made.secret });
    const asked = [];
    page.on("request", (r) => r.url().includes("/secrets") && asked.push(r.url()));
    await page.goto(`${server.url}/settings`);
    await page.getByRole("heading", { name: /^Notifications of project/ }).waitFor();
    assert.equal(await page.getByRole("heading", { name: /^Secrets/ }).count(), 0);
    assert.equal(await page.getByRole("button", { name: "New secret" }).count(), 0);
    await page.goto(`${server.url}/submit`);
    if (role === "viewer") {
      await page.getByText("This key may not submit jobs").waitFor();
      assert.equal(await page.getByRole("button", { name: "Secrets" }).count(), 0);
      assert.deepEqual(asked, []);
    } else {
      await page.getByRole("button", { name: "Secrets" }).click();
      await page.getByRole("dialog").getByLabel("Variable NAMED").waitFor();
    }
  }
});

test("the pages of secrets are accessible, and have their screenshots", async () => {
  for (const name of ["HF_TOKEN", "WANDB_API_KEY", "A_RATHER_LONG_NAME_OF_A_SECRET_THAT_HAS_TO_BE_CUT_SOMEWHERE_12"]) await server.api("PUT", `/projects/shots/secrets/${name}`, { value, ...(name === "HF_TOKEN" && { workers: ["trusted", "eu"] }) });
  browser.expected.push(/422/); // the check of a spec that names a secret which the project does not have
  for (const size of sizes) {
    const page = await browser.page(server, size);
    const dialog = page.getByRole("dialog");
    await page.goto(`${server.url}/settings?project=shots`);
    const region = page.getByRole("region", { name: "Secrets of project shots" });
    await region.getByRole("cell", { name: "HF_TOKEN", exact: true }).waitFor();
    await region.scrollIntoViewIfNeeded();
    await look(page, "secrets", size);
    await region.getByRole("button", { name: "Set a new value of HF_TOKEN" }).click();
    await dialog.getByLabel("Value", { exact: true }).fill(value);
    await look(page, "secrets-set", size);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await region.getByRole("button", { name: "Delete HF_TOKEN" }).click();
    await dialog.getByText("Running tasks keep its value").waitFor();
    await look(page, "secrets-delete", size);
    await page.goto(`${server.url}/submit`);
    const editor = page.getByTestId("editor").locator(".cm-content");
    await editor.click();
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.insertText("name: two\nproject: shots\ntasks:\n  - name: prepare\n    run: make\n    secrets: [HF_TOKEN, GONE, {name: GHCR, registry: ghcr.io}]\n  - name: train\n    run: make\n");
    await page.getByRole("button", { name: "Secrets" }).click();
    await dialog.getByLabel("File with HF_TOKEN", { exact: true }).check();
    await dialog.getByLabel("Path of the file with HF_TOKEN").fill(".cache/huggingface/token");
    await look(page, "secrets-submit", size);
    await page.context().close();
  }
});
