// The dashboard in a real browser, against a real server with real tasks: make e2e-web.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { join } from "node:path";
import { accessible, adminToken, Browser, mkdtempSync, script, Server, shots, tmpdir, until } from "./world.mjs";

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

const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();
const badge = (page, state) => page.locator("header").getByText(state, { exact: true }).first().waitFor();
const say = (text) => ({ kind: "script", run: text });

test("signing in keeps the address, and a wrong key is refused", async () => {
  browser.expected.push(/401/);
  const page = await browser.page(server, { token: null });
  await page.goto(`${server.url}/workers?view=cards`);
  await heading(page, "Sign in to Muster");
  await accessible(page);
  await page.getByLabel("API key").fill("mst_admin_wrongwrongwrongwrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(/key/i).and(page.locator('[class*="error"]')).first().waitFor();
  await page.getByLabel("API key").fill(adminToken);
  await page.getByRole("button", { name: "Sign in" }).click();
  await heading(page, "Workers");
  assert.match(page.url(), /\/workers\?view=cards$/);
  await page.getByTestId("cards").getByText("first").waitFor();
  // The key is where scripts cannot read it.
  assert.equal(await page.evaluate((token) => document.cookie.includes(token) || JSON.stringify({ ...localStorage, ...sessionStorage }).includes(token), adminToken), false);
});

test("a job is submitted in the editor, watched, cancelled and retried", async () => {
  browser.expected.push(/422/);
  const page = await browser.page(server);
  await page.goto(`${server.url}/submit`);
  const editor = page.getByTestId("editor").locator(".cm-content");
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText("name: browser\nkind: script\nrn: echo x\n");
  await page.getByText("unknown field").first().waitFor();
  await page.locator(".cm-lintRange-error").first().waitFor();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText('name: browser\nkind: script\nrun: |\n  for i in $(seq 1 600); do echo "::muster progress=$(awk "BEGIN{print $i/600}") step=\\"step $i\\" loss=$(awk "BEGIN{print 1/$i}")"; echo "line $i"; sleep 0.2; done\n');
  await page.getByTestId("plan").getByText("can start now").waitFor();
  await accessible(page);
  await page.keyboard.press("ControlOrMeta+Enter");
  await page.waitForURL(/\/jobs\/\d+/);
  const id = /jobs\/(\d+)/.exec(page.url())[1];
  await badge(page, "running");

  // The task's page follows its output and its step without a reload.
  await page.goto(`${server.url}/tasks/${id}.0?tab=log`);
  const log = page.locator("#log-lines");
  await log.getByText("line 5", { exact: true }).waitFor();
  await log.getByText("line 15", { exact: true }).waitFor();
  await page.getByText(/step \d+/).first().waitFor();
  await page.goto(`${server.url}/tasks/${id}.0?tab=metrics`);
  await page.getByText("loss").first().waitFor();
  await page.locator("canvas").first().waitFor();
  await accessible(page);

  await page.goto(`${server.url}/jobs/${id}`);
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await badge(page, "cancelled");
  await server.job(id, "cancelled");
  await page.getByRole("button", { name: /Retry/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: /Retry/ }).click();
  await badge(page, "running");
  await server.job(id, "running");
  await server.api("POST", `/jobs/${id}/cancel`, {});
  await badge(page, "cancelled");
});

test("artifacts are previewed", async () => {
  const files = `mkdir -p "$MUSTER_OUT"; cd "$MUSTER_OUT"
printf 'name,value\\nalpha,1\\nbeta,2\\n' > table.csv
printf '{"nested": {"answer": 42}}' > data.json
printf '# A heading\\n\\n<script>window.hacked = 1</script> and **bold** text\\n' > page.md
printf '<script>parent.hacked = 1; window.hacked = 1</script>' > evil.html
printf 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' | base64 -d > dot.png
echo plain words > notes.txt`;
  const job = await server.submit({ name: "files", tasks: [{ name: "make", ...say(files), outputs: ["*"] }] });
  await server.job(job.id, "succeeded", "failed");
  const page = await browser.page(server);
  await page.goto(`${server.url}/tasks/${job.id}.0?tab=artifacts`);
  const show = async (name) => page.getByRole("region", { name: "Files" }).getByText(name, { exact: true }).first().click();
  const preview = (name) => page.getByRole("region", { name: `Preview of ${name}` });
  await show("table.csv");
  await preview("table.csv").getByText("alpha").waitFor();
  await show("data.json");
  await preview("data.json").getByText("42").waitFor();
  await show("page.md");
  await preview("page.md").getByRole("heading", { name: "A heading" }).waitFor();
  await show("notes.txt");
  await preview("notes.txt").getByText("plain words").waitFor();
  await show("dot.png");
  await until("the image is decoded", () => preview("dot.png").locator("img").evaluate((img) => img.naturalWidth === 1));
  await accessible(page);
  // What a task wrote runs no script in the dashboard's origin.
  browser.expected.push(/Content Security Policy|sandbox|script/i);
  const evil = await page.context().newPage();
  await evil.goto(`${server.url}/api/v1/tasks/${job.id}.0/artifacts/evil.html`).catch((e) => assert.match(String(e), /Download is starting/));
  assert.equal(await evil.evaluate(() => window.hacked), undefined);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
});

test("a worker is added by the lines to paste, and drained", async () => {
  const page = await browser.page(server);
  await page.goto(`${server.url}/workers`);
  await page.getByRole("button", { name: "Add a worker" }).click();
  await page.getByLabel("Name (optional)").fill("second");
  await page.getByRole("button", { name: "Create a join token" }).click();
  await page.getByText("Waiting for the worker to join").waitFor();
  await accessible(page);
  const lines = await page.getByTestId("join-line").locator("pre").allTextContents();
  assert.equal(lines.length, 3);
  const folder = mkdtempSync(join(tmpdir(), "muster-second-"));
  const worker = script(lines.join("\n"), folder, { ...process.env, HOME: folder, XDG_DATA_HOME: join(folder, "share"), MUSTER_CONFIG: join(folder, "context.json") });
  const output = [];
  for (const stream of [worker.stdout, worker.stderr]) stream.on("data", (b) => output.push(b.toString()));
  const ended = new Promise((resolve) => worker.on("exit", resolve));
  try {
    await page.getByText("The worker has joined").waitFor({ timeout: 60_000 });
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByTestId("table-workers").getByRole("link", { name: "second" }).click();
    await heading(page, "second");
    await badge(page, "active");
    await page.getByRole("button", { name: "Drain" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
    await badge(page, "gone");
    await until("the worker's process ended by itself", async () => (await Promise.race([ended, new Promise((r) => setTimeout(() => r("not yet"), 200))])) !== "not yet");
  } catch (e) {
    throw new Error(`${String(e)}\nthe worker said:\n${output.join("")}`);
  } finally {
    if (worker.exitCode === null && worker.signalCode === null) process.kill(-worker.pid, "SIGKILL");
  }
});

test("a lost server is shown, and the page is live again when it is back", async () => {
  browser.expected.push(/ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_SOCKET_NOT_CONNECTED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_NETWORK/);
  const page = await browser.page(server);
  await page.goto(`${server.url}/jobs`);
  await page.getByTestId("connection").getByText("Live").waitFor();
  await server.kill();
  await page.getByTestId("connection-lost").waitFor();
  await page.screenshot({ path: join(shots, "lost.png") });
  await accessible(page);
  await server.run();
  await page.getByTestId("connection-lost").waitFor({ state: "detached", timeout: 60_000 });
  const job = await server.submit({ name: "after-the-restart", ...say("echo back") });
  await page.getByText("after-the-restart").first().waitFor();
  await server.job(job.id, "succeeded");
});

test("an expired session loses no work", async () => {
  // The server ends the streams of a key that is revoked.
  browser.expected.push(/401|ERR_INCOMPLETE_CHUNKED_ENCODING/);
  const made = await server.api("POST", "/keys", { name: "short", role: "submitter" });
  const page = await browser.page(server, { token: made.secret });
  await page.goto(`${server.url}/submit`);
  const editor = page.getByTestId("editor").locator(".cm-content");
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText("name: kept\nkind: script\nrun: echo kept\n");
  await page.getByTestId("plan").getByText("can start now").waitFor();
  const renewed = await server.api("POST", "/keys", { name: "short", role: "submitter" });
  await server.api("DELETE", `/keys/${made.key.id}`);
  await page.getByText("Sign in again").waitFor();
  await page.screenshot({ path: join(shots, "expired.png") });
  await accessible(page);
  await page.getByLabel("API key").fill(renewed.secret);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Sign in again").waitFor({ state: "detached" });
  assert.match(await editor.innerText(), /echo kept/);
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/\d+/);
  await heading(page, /kept/);
});

test("after an expired session another user sees nothing of the former one, and sends nothing", async () => {
  browser.expected.push(/401|ERR_INCOMPLETE_CHUNKED_ENCODING/);
  const job = await server.submit({ name: "not-cancelled", ...say("sleep 120") });
  await server.job(job.id, "running");
  const made = await server.api("POST", "/keys", { name: "former", role: "submitter" });
  const page = await browser.page(server, { token: made.secret });
  await page.goto(`${server.url}/submit`);
  const editor = page.getByTestId("editor").locator(".cm-content");
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText("name: secret-of-the-former\nkind: noop\n");
  await until("the draft is kept", () => page.evaluate(() => localStorage.getItem("muster-submit-drafts")?.includes("secret")));
  await page.goto(`${server.url}/jobs/${job.id}`);
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await server.api("DELETE", `/keys/${made.key.id}`);
  await page.getByText("Sign in again").waitFor();
  // A change that waits for the sign-in; the dialog covers its button.
  let sent = 0;
  page.on("request", (r) => r.url().endsWith("/cancel") && sent++);
  const button = page.locator("button", { hasText: "Cancel the job" });
  await button.dispatchEvent("click");
  await until("the change waits", async () => (await button.getAttribute("data-loading")) !== null);
  await page.getByLabel("API key").fill(adminToken);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("What the former user had not sent yet was dropped").waitFor();
  await badge(page, "running");
  assert.equal(sent, 0);
  assert.equal((await server.api("GET", `/jobs/${job.id}`)).state, "running");
  await page.getByRole("link", { name: "Submit" }).first().click();
  await editor.waitFor();
  assert.doesNotMatch(await editor.innerText(), /secret/);
  await server.api("POST", `/jobs/${job.id}/cancel`, {});
});

test("a viewer is offered no action, and a shared link shows one job only", async () => {
  const job = await server.submit({ name: "shared", ...say("echo shared") });
  await server.job(job.id, "succeeded");
  const viewer = await server.api("POST", "/keys", { name: "eyes", role: "viewer" });
  const page = await browser.page(server, { token: viewer.secret });
  await page.goto(`${server.url}/jobs/${job.id}`);
  await heading(page, /shared/);
  for (const name of [/Cancel/, /Retry/, /Run again/]) assert.equal(await page.getByRole("button", { name }).count(), 0);
  await page.goto(`${server.url}/workers`);
  await page.getByTestId("table-workers").getByText("first").waitFor();
  assert.equal(await page.getByRole("button", { name: "Add a worker" }).count(), 0);
  await page.goto(`${server.url}/settings`);
  await page.getByRole("heading", { name: /^Notifications of project/ }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Add webhook" }).count(), 0);

  const link = await server.api("POST", `/jobs/${job.id}/share`, { ttl: 3600 });
  const guest = await browser.page(server, { token: null });
  browser.expected.push(/401|403|404/);
  await guest.goto(server.url + link.url);
  await heading(guest, /shared/);
  // It has the id of the worker, which is no link: a link to one job does not show workers.
  const { worker } = await server.api("GET", `/tasks/${job.id}.0`);
  for (const tab of ["attempts", "events", "environment"]) {
    await guest.goto(`${server.url}/tasks/${job.id}.0?tab=${tab}`);
    await guest.locator("main [role=tabpanel]").getByText(worker).first().waitFor();
    assert.equal(await guest.locator('a[href^="/workers"]').count(), 0);
  }
  const other = await server.submit({ name: "other", kind: "noop" });
  await guest.goto(`${server.url}/jobs/${other.id}`);
  await guest.getByRole("alert").first().waitFor();
});

/** Looks at pages in both schemes and at three widths: each has its heading, its screenshot, no sideways scrolling, and with axe nothing that it finds serious. */
async function shoot(server, pages) {
  for (const scheme of ["light", "dark"]) {
    for (const width of [390, 900, 1440]) {
      const page = await browser.page(server, { width, height: width === 390 ? 844 : 900, scheme });
      for (const [name, [path, title, content]] of Object.entries(pages)) {
        await page.goto(server.url + path);
        await heading(page, title);
        await page.waitForFunction(() => document.querySelector("main [aria-busy=true], main [role=status][aria-label^=Loading]") === null);
        if (content) await page.locator("main").locator(content).first().waitFor();
        await page.screenshot({ path: join(shots, `${name}-${scheme}-${width}.png`) });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(wide <= 1, `${path} at ${width} px is ${wide} px too wide`);
        if (width !== 900) await accessible(page);
      }
      await page.context().close();
    }
  }
}

test("every page is accessible, shows its content, and has its screenshots", async () => {
  const sweep = await server.submit({
    name: "sweep-with-a-rather-long-name-that-has-to-be-cut-somewhere-in-a-list-of-jobs",
    tasks: [
      { name: "prepare", ...say('echo "{\\"rows\\": 100}" > "$MUSTER_OUT/result.json"') },
      {
        name: "try",
        needs: ["prepare"],
        matrix: { lr: [0.1, 0.01], depth: [2, 4] },
        env: { LR: "${matrix.lr}", DEPTH: "${matrix.depth}" },
        ...say('for s in 1 2 3 4 5; do echo "::muster progress=0.$s loss=$(awk "BEGIN{print 1/(1+$s*$LR*$DEPTH)}")"; sleep 0.1; done; echo "{\\"loss\\": $(awk "BEGIN{print $LR*$DEPTH}")}" > "$MUSTER_OUT/result.json"'),
      },
    ],
  });
  const waits = await server.submit({ name: "waits", ...say("true"), resources: { gpus: { count: 2 } } });
  const failed = await server.submit({ name: "fails", ...say("echo 'Traceback (most recent call last):' >&2; echo 'ValueError: no' >&2; exit 3") });
  const array = await server.submit({ name: "array", kind: "noop", array: "0-99999" });
  await server.job(sweep.id, "succeeded", "failed");
  await server.job(failed.id, "failed");
  await server.job(array.id, "succeeded");
  const { workers } = await server.api("GET", "/workers");
  const first = workers.find((w) => w.name === "first");
  const pages = {
    overview: ["/", /Overview/],
    jobs: ["/jobs", /Jobs/],
    graph: [`/jobs/${sweep.id}?tab=graph`, /sweep/],
    timeline: [`/jobs/${sweep.id}?tab=timeline`, /sweep/],
    results: [`/jobs/${sweep.id}?tab=results`, /sweep/],
    runs: [`/jobs/${sweep.id}?tab=results&view=runs&runs=1-4`, /sweep/],
    spec: [`/jobs/${sweep.id}?tab=spec`, /sweep/],
    array: [`/jobs/${array.id}?tab=elements`, /array/],
    tasks: [`/jobs/${array.id}?tab=tasks`, /array/],
    log: [`/tasks/${failed.id}.0?tab=log`, /./],
    metrics: [`/tasks/${sweep.id}.1?tab=metrics`, /./, "canvas"],
    events: [`/tasks/${sweep.id}.1?tab=events`, /./],
    environment: [`/tasks/${sweep.id}.1?tab=environment`, /./],
    waiting: [`/tasks/${waits.id}.0`, /./],
    workers: ["/workers", /Workers/],
    gpus: ["/workers?view=gpus", /Workers/],
    worker: [`/workers/${first.id}`, /first/],
    submit: ["/submit", /Submit/],
    settings: ["/settings", /Settings/],
  };
  await shoot(server, pages);
});

test("an empty server says how to begin, and a job of a million elements that wait is shown", async () => {
  const empty = await Server.start({}, { empty: true });
  try {
    await shoot(empty, { "empty-overview": ["/", /Overview/], "empty-jobs": ["/jobs", /Jobs/], "empty-workers": ["/workers", /Workers/] });
    const million = await empty.submit({ name: "million", kind: "noop", array: "0-999999" });
    await shoot(empty, { million: [`/jobs/${million.id}?tab=elements`, /million/], "million-tasks": [`/jobs/${million.id}?tab=tasks`, /million/] });
  } finally {
    await empty.stop();
  }
});

test("Ctrl K finds jobs that are not among the newest, and has actions", async () => {
  const old = await server.submit({ name: "long-ago", kind: "noop" });
  for (let i = 0; i < 200; i++) await server.submit({ name: "newer", kind: "noop" });
  const page = await browser.page(server);
  await page.goto(`${server.url}/settings`);
  await heading(page, "Settings");
  const search = page.getByRole("searchbox", { name: "Search" }).or(page.getByRole("textbox", { name: "Search" }));
  await page.keyboard.press("ControlOrMeta+k");
  await search.fill("long-ago");
  await page.getByRole("button", { name: /long-ago/ }).click();
  await page.waitForURL(new RegExp(`/jobs/${old.id}$`));
  await page.keyboard.press("ControlOrMeta+k");
  await search.fill("add a work");
  await page.getByRole("button", { name: "Add a worker" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Create a join token" }).waitFor();
});

test("the first load is small, and the page can be used at once", async (t) => {
  const page = await browser.page(server);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  const data = new Set();
  let loaded = 0;
  cdp.on("Network.responseReceived", (e) => new URL(e.response.url).pathname.startsWith("/api/") && data.add(e.requestId));
  cdp.on("Network.loadingFinished", (e) => (loaded += data.has(e.requestId) ? 0 : e.encodedDataLength));
  const began = performance.now();
  await page.goto(server.url);
  await page.getByRole("link", { name: "Jobs" }).first().click({ trial: true });
  t.diagnostic(`the navigation took a click after ${Math.round(performance.now() - began)} ms, and ${Math.round(loaded / 1000)} kB of program had been loaded`);
  assert.ok(loaded <= 300_000, `${loaded} bytes were loaded before the page could be used`);
});
