// What people do about the fleet, in a real browser against a real server with real workers: overview, workers, settings, submit.
import assert from "node:assert/strict";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, afterEach, before, test } from "node:test";
import { join } from "node:path";
import { SMI } from "./smi.mjs";
import { accessible, Browser, mkdtempSync, Server, shots, tmpdir } from "./world.mjs";

const broken = [{ utilization: 73, used: 20480, temperature: 66, power: 311 }, { reset: true }];

let server;
let browser;
let smi;
let outside;

before(async () => {
  outside = mkdtempSync(join(tmpdir(), "muster-fleet-"));
  smi = new SMI(join(outside, "smi"), broken);
  server = await Server.start({ PATH: smi.path, MUSTER_WEBHOOK_ALLOW: "loopback" });
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
  rmSync(outside, { recursive: true, force: true });
});
afterEach(async () => {
  for (const context of browser.browser.contexts()) await context.close();
  browser.expected.length = 0;
  browser.clean();
});

const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();
const gone = (locator) => locator.waitFor({ state: "detached" });
/** What needs attention, by its words. */
const item = (page, text) => page.getByRole("region", { name: "Needs attention" }).getByRole("listitem").filter({ hasText: text });

/** Screenshots of what is shown now, in both schemes and at three widths. */
async function shoot(page, name) {
  const { width, height } = page.viewportSize();
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const w of [390, 820, 1440]) {
      await page.setViewportSize({ width: w, height: w === 390 ? 844 : 900 });
      await page.waitForTimeout(150); // until what measures itself is drawn
      await page.screenshot({ path: join(shots, `${name}-${scheme}-${w}.png`), fullPage: true });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 1, `${name} at ${w} px is ${wide} px too wide`);
      if (w === (scheme === "light" ? 390 : 1440)) await accessible(page);
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width, height });
}

test("each thing that needs attention has a button that helps", async () => {
  // A worker that cannot start anything is avoided after three attempts, another one is paused.
  const bad = server.worker("bad", { PATH: process.env.PATH });
  const held = server.worker("held", { PATH: process.env.PATH });
  await server.workerIs("bad", "active", (w) => w.state === "active");
  const heldID = (await server.workerIs("held", "active", (w) => w.state === "active")).id;
  await server.api("POST", `/workers/${heldID}/pause`, {});
  const tasks = join(bad.folder, "data", "tasks");
  renameSync(tasks, `${tasks}.aside`);
  writeFileSync(tasks, "");
  const onBad = () => server.submit({ name: "nowhere", tasks: [{ kind: "script", run: "true", where: { workers: ["bad"] } }] });
  await onBad();
  await server.workerIs("bad", "avoided", (w) => w.health?.avoided);
  await server.workerIs("first", "known with a broken GPU", (w) => w.resources.gpus?.[1]?.quarantined);

  const page = await browser.page(server, { width: 1440 });
  await page.goto(server.url);
  await heading(page, "Overview");
  for (const text of ["GPU 1 of worker first is quarantined", "Worker bad is avoided", "Worker held is paused"]) await item(page, text).waitFor();
  await shoot(page, "attention");

  // A device that is still broken stays where it is, and its button says so.
  const gpu = item(page, "GPU 1 of worker first");
  await gpu.getByRole("button", { name: "Check again" }).click();
  await page.getByRole("alert").filter({ hasText: "GPU 1 stays quarantined" }).waitFor();
  smi.set([broken[0], { utilization: 5 }]);
  await gpu.getByRole("button", { name: "Check again" }).click();
  await page.getByText("The GPU of first is well").waitFor();
  await gone(gpu);

  rmSync(tasks);
  renameSync(`${tasks}.aside`, tasks);
  await item(page, "Worker bad is avoided").getByRole("button", { name: "Resume" }).click();
  await page.getByText("bad takes tasks again").waitFor();
  await gone(item(page, "Worker bad is avoided"));
  await server.job((await onBad()).id, "succeeded");

  await item(page, "Worker held is paused").getByRole("button", { name: "Resume" }).click();
  await page.getByText("held takes tasks again").waitFor();
  await gone(item(page, "Worker held is paused"));

  // A worker that does not answer can come back, or be removed; its key is revoked with it.
  await Promise.all([bad.kill(), held.kill("SIGTERM")]);
  const silent = item(page, "Worker bad is unreachable");
  await silent.getByRole("link", { name: "Open worker" }).click();
  await heading(page, "bad");
  browser.expected.push(/404/);
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await page.getByText("Remove: bad").waitFor();
  await page.goto(server.url);
  await item(page, /[0-9] attempts of job 1 /).or(page.getByText("Nothing needs attention")).first().waitFor();
  await gone(item(page, "Worker bad")); // the server's overview may be two seconds old
  const { workers } = await server.api("GET", "/workers");
  assert.equal(workers.some((w) => w.name === "bad"), false);
});

test("cards of workers have a gauge for each GPU", async () => {
  smi.set([broken[0], { utilization: 5 }]);
  const page = await browser.page(server);
  await page.goto(`${server.url}/workers?view=cards`);
  const card = page.getByTestId("cards").getByRole("listitem", { name: "first" });
  await card.getByText("73%").waitFor();
  assert.equal(await card.getByRole("meter", { name: "VRAM" }).count(), 2);
  await card.getByText("20 of 40 GiB").waitFor();
  await card.getByText("66 °C").waitFor();
  // Gauges follow what the devices do.
  smi.set([{ ...broken[0], utilization: 31 }, { utilization: 5 }]);
  await card.getByText("31%").waitFor({ timeout: 20_000 });
  await shoot(page, "cards");
});

test("a webhook is added, tested, fails, and is removed", async () => {
  const got = [];
  const receiver = createServer((request, response) => {
    const body = [];
    request.setEncoding("utf8").on("data", (b) => body.push(b));
    request.on("end", () => {
      got.push(JSON.parse(body.join("")));
      response.writeHead(500, { "Content-Type": "text/plain" }).end("the receiver is out of order");
    });
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${receiver.address().port}/hook/with-a-rather-long-path-that-has-to-be-cut-somewhere-in-a-list`;
  try {
    const page = await browser.page(server);
    await page.goto(`${server.url}/settings`);
    const section = page.getByRole("region", { name: /^Notifications of project/ });
    await section.getByRole("button", { name: "Add webhook" }).click();
    const dialog = page.getByRole("dialog");
    // What the server does not accept is said in the dialog, and nothing that was written is lost.
    browser.expected.push(/422/);
    await dialog.getByLabel("URL").fill("ftp://example.com/hook");
    await dialog.getByRole("button", { name: "Add the webhook" }).click();
    await dialog.getByRole("alert").waitFor();
    await accessible(page);
    await dialog.getByLabel("URL").fill(url);
    await dialog.getByLabel("Format").selectOption("slack");
    await dialog.getByRole("button", { name: "Add the webhook" }).click();
    await gone(dialog);
    await section.getByText("slack").waitFor();

    await section.getByRole("button", { name: /^Send a test/ }).click();
    await page.getByText("HTTP 500: the receiver is out of order").first().waitFor();
    assert.match(got[0].text, /test/i);
    const job = await server.submit({ name: "fails", kind: "script", run: "exit 3" });
    await server.job(job.id, "failed");
    const row = section.getByRole("row").filter({ hasText: "job.failed" });
    await row.getByText("pending").waitFor();
    await row.getByText("HTTP 500").waitFor();
    await row.getByText(/next attempt/).waitFor();
    await shoot(page, "webhook");

    await section.getByRole("button", { name: /^Remove / }).click();
    await page.getByText("The webhook is removed").waitFor();
    await section.getByText("No webhooks.").waitFor();
    // The log of what was sent stays.
    await row.waitFor();
  } finally {
    receiver.close();
  }
});

/** A folder as people have them: with a folder in it, a script, and what is not to travel. */
function project() {
  const folder = join(outside, "project with spaces");
  for (const f of ["data", ".git", "node_modules/x"]) mkdirSync(join(folder, f), { recursive: true });
  writeFileSync(join(folder, "run.sh"), '#!/bin/sh\ncat data/greeting.txt\nls -A\n[ -x run.sh ] && echo executable\n');
  writeFileSync(join(folder, "data", "greeting.txt"), "bonjour à tous\n");
  writeFileSync(join(folder, ".git", "config"), "secret\n");
  writeFileSync(join(folder, "node_modules", "x", "index.js"), "x\n");
  writeFileSync(join(folder, ".musterignore"), "node_modules/\n");
  return folder;
}

/** Writes to the editor in place of what it has. */
async function write(page, text) {
  await page.getByTestId("editor").locator(".cm-content").click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText(text);
}

/** Submits what is written, and returns the task's output. */
async function output(page) {
  await page.getByTestId("plan").getByText("can start now").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/\d+/);
  const id = /jobs\/(\d+)/.exec(page.url())[1];
  await server.job(id, "succeeded", "failed");
  const answer = await fetch(`${server.url}/api/v1/tasks/${id}.0/logs`, { headers: { Authorization: `Bearer ${server.env.MUSTER_ADMIN_TOKEN}` } });
  return answer.text();
}

function holds(text) {
  for (const part of ["bonjour à tous", "run.sh", "executable"]) assert.ok(text.includes(part), `${part} is missing in:\n${text}`);
  for (const part of ["node_modules", ".git\n"]) assert.ok(!text.includes(part), `${part} is in:\n${text}`);
}

test("a folder travels with a task, chosen or dropped", async () => {
  const folder = project();
  const page = await browser.page(server);
  await page.goto(`${server.url}/submit`);
  const spec = "name: folder\nkind: script\nrun: ./run.sh\n";
  await write(page, spec);
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Add a folder" }).click();
  await (await chooser).setFiles(folder);
  await page.getByText(/project with spaces \(3 files\) travels/).waitFor();
  assert.match(await page.getByTestId("editor").locator(".cm-content").innerText(), /files: sha256:[0-9a-f]{64}/);
  await shoot(page, "folder");
  holds(await output(page));

  await page.goto(`${server.url}/submit`);
  await write(page, spec.replace("folder", "dropped"));
  const cdp = await page.context().newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  const { x, y, width, height } = await page.getByTestId("editor").boundingBox();
  for (const type of ["dragEnter", "dragOver", "drop"]) await cdp.send("Input.dispatchDragEvent", { type, x: x + width / 2, y: y + height / 2, data });
  await page.getByText(/project with spaces \(3 files\) travels/).waitFor();
  holds(await output(page));
});

test("a kind is filled in by its own form, and planned", async () => {
  browser.expected.push(/422/);
  const page = await browser.page(server);
  await page.goto(`${server.url}/submit`);
  await write(page, "name: form\n");
  await page.getByRole("button", { name: "Kinds" }).click();
  const dialog = page.getByRole("dialog");
  const kind = dialog.getByRole("combobox", { name: "Kind" });
  await kind.fill("hash");
  await page.getByRole("option", { name: /^hash/ }).click();
  // What is missing is said at its field, and nothing is written.
  await dialog.getByRole("button", { name: "Write it to the spec" }).click();
  assert.equal(await said(dialog.getByLabel("data")), "This is needed");
  await kind.fill("api");
  await page.getByRole("option", { name: /^api/ }).click();
  await dialog.getByLabel("url").fill(`${server.url}/healthz`);
  await dialog.getByLabel("repeat").fill("0");
  assert.equal(await said(dialog.getByLabel("repeat")), "At least 1");
  await accessible(page);
  await page.screenshot({ path: join(shots, "form.png") });
  await dialog.getByLabel("repeat").fill("2");
  await dialog.getByRole("button", { name: "Write it to the spec" }).click();
  await gone(dialog);
  const editor = page.getByTestId("editor").locator(".cm-content");
  assert.match(await editor.innerText(), /name: form\nkind: api\ninput:\n +url: http.*healthz\n +repeat: 2/);
  const plan = page.getByRole("complementary", { name: "Check of the spec" });
  await plan.getByTestId("plan").waitFor();

  // What the server finds wrong has its place in the text.
  await write(page, "name: form\nkind: api\ninput:\n  url: http://127.0.0.1/\n  repeat: 0\n");
  await plan.getByText(/line 5 .*repeat/).waitFor();
  await page.locator(".cm-lintRange-error").first().waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await plan.getByText("1 error").waitFor();
  assert.match(page.url(), /\/submit$/);
});

/** What is said about the value of a field, to people who see it and to a screen reader. */
const said = (field) => field.evaluate((e) => (e.getAttribute("aria-invalid") === "true" ? (e.getAttribute("aria-describedby") ?? "").split(" ").map((id) => document.getElementById(id)).find((d) => d?.id.endsWith("error"))?.textContent : undefined));
