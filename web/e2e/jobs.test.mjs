// Jobs and tasks in a real browser, against a real server with real tasks: make e2e-web.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { after, afterEach, before, test } from "node:test";
import { join } from "node:path";
import { accessible, adminToken, Browser, Server, shots, until } from "./world.mjs";

let server;
let browser;

// How many MiB the long log has: few in CI; MUSTER_LOG_MIB=1024 makes one of 1 GiB.
const logMiB = Number(process.env["MUSTER_LOG_MIB"] ?? 64);

before(async () => {
  server = await Server.start({ MUSTER_LOG_CAP: "4GiB" });
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
const script = (name, run, more) => ({ name, kind: "script", run, ...more });
const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });
const gone = /ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_NETWORK|ERR_SOCKET_NOT_CONNECTED/;

test("what a running task reports is the job's progress, and owners and workers have names", async () => {
  const ann = await server.api("POST", "/keys", { name: "ann", role: "submitter" });
  const job = await server.api("POST", "/jobs", script("halfway", 'echo "::muster progress=0.42 step=epoch"; while [ ! -e "$MUSTER_OUT/stop" ]; do sleep 0.2; done'), ann.secret);
  const page = await browser.page(server);
  await page.goto(`${server.url}/jobs`);
  const row = page.getByTestId("table-jobs").getByRole("row").filter({ hasText: "halfway" });
  await row.getByText("42%").waitFor();
  await row.getByText("ann", { exact: true }).waitFor();
  await shot(page, "jobs-progress");
  await row.getByText("ann", { exact: true }).click();
  await page.getByText("owner: ann").waitFor();
  assert.equal(new URL(page.url()).searchParams.get("owner"), ann.key.id);
  await page.goto(`${server.url}/jobs/${job.id}?tab=tasks`);
  await page.locator("main").getByText("42%").first().waitFor();
  await page.locator("dd").getByText("ann", { exact: true }).waitFor();
  await page.getByTestId("table-job-tasks").getByRole("link", { name: "first", exact: true }).waitFor();
  await accessible(page);
  await server.api("POST", `/jobs/${job.id}/cancel`, {});
  await server.job(job.id, "cancelled");
});

test("a job runs again with changes, its spec is compared with the previous run, and two jobs side by side", async () => {
  const spec = (lr) => script("tune", `echo "::muster loss=${lr}"; printf '{"loss": ${lr}}' > "$MUSTER_OUT/result.json"`, { env: { LR: String(lr) } });
  const first = await server.submit(spec(0.5));
  await server.job(first.id, "succeeded");
  const page = await browser.page(server);
  await page.goto(`${server.url}/tasks/${first.id}.0`);
  await page.getByRole("link", { name: "Run again with changes" }).click();
  const editor = page.getByTestId("editor").locator(".cm-content");
  await editor.getByText("tune").first().waitFor();
  const text = await editor.innerText();
  assert.match(text, /LR: "?0\.5/);
  await editor.click();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText(text.replaceAll("0.5", "0.25").replaceAll("\n\n", "\n"));
  await page.getByTestId("plan").getByText("can start now").waitFor();
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/\d+/);
  const second = Number(/jobs\/(\d+)/.exec(page.url())[1]);
  assert.notEqual(second, first.id);
  await server.job(second, "succeeded");

  await page.goto(`${server.url}/jobs/${second}?tab=spec&diff=previous`);
  const changes = page.getByLabel(`Changes since job ${first.id}`);
  await changes.getByText(/LR: .?0\.25/).waitFor();
  await changes.getByText(/LR: .?0\.5/).waitFor();
  await page.getByText(/lines? removed, \d+ lines? added/).waitFor();
  await accessible(page);
  await shot(page, "spec-changes");

  await page.goto(`${server.url}/jobs?name=tune`);
  const table = page.getByTestId("table-jobs");
  for (const id of [first.id, second]) await table.getByLabel(`Select ${id}`).check();
  await page.getByRole("button", { name: "Compare" }).or(page.getByRole("link", { name: "Compare" })).click();
  await heading(page, "Compare jobs");
  const side = page.locator("main table").first();
  for (const id of [first.id, second]) await side.getByRole("link", { name: new RegExp(`^${id} `) }).waitFor();
  const loss = page.getByRole("row").filter({ hasText: "loss" }).first();
  await loss.getByText("0.25").waitFor();
  await loss.getByText("0.5").waitFor();
  await accessible(page);
  await shot(page, "compare");
});

test("attempts and checkpoints are marked on the charts of a task that failed and resumed", async () => {
  const job = await server.submit(
    script(
      "resumes",
      `n=0; [ -e "$MUSTER_CHECKPOINT/n" ] && n=$(cat "$MUSTER_CHECKPOINT/n")
echo "resumed at $n"
for i in 1 2 3 4 5 6; do n=$((n+1)); echo "::muster progress=$(awk "BEGIN{print $n/12}") loss=$(awk "BEGIN{print 1/$n}")"; echo $n > "$MUSTER_CHECKPOINT/n"; sleep 0.5; done
[ $n -ge 12 ] || { echo "lost the machine" >&2; exit 3; }`,
      { retries: { max: 2, backoff: "1s" }, checkpoint: { every: "1s" } },
    ),
  );
  await server.job(job.id, "succeeded", "failed");
  const task = await server.api("GET", `/tasks/${job.id}.0`);
  assert.equal(`${task.state} ${task.attempt}`, "succeeded 2");
  const { events } = await server.api("GET", `/tasks/${job.id}.0/events`);
  assert.ok(events.filter((e) => e.type === "checkpoint").length > 0, JSON.stringify(events));
  const page = await browser.page(server);
  await page.goto(`${server.url}/tasks/${job.id}.0?tab=metrics`);
  await page.getByText("checkpoint saved").waitFor();
  const chart = page.getByRole("figure", { name: "loss" }).or(page.locator("figure", { hasText: "loss" })).first();
  await chart.waitFor();
  await chart.getByText("attempt 1").first().waitFor();
  await chart.getByText("attempt 2").first().waitFor();
  await accessible(page);
  await shot(page, "metrics-attempts");
  // The marks are drawn on the canvas: in the table that stands for it they are words.
  await chart.getByRole("button", { name: /table/i }).click();
  const marks = page.getByRole("dialog").or(chart);
  await marks.getByText("attempt 2").first().waitFor();
  await marks.getByText("checkpoint").first().waitFor();
  await page.goto(`${server.url}/tasks/${job.id}.0?tab=log&attempt=2`);
  await page.locator("#log-lines").getByText("resumed at 6").waitFor();
});

/** A connection to a server that can be cut. */
class Wire {
  static async to(server) {
    const wire = new Wire();
    wire.open = new Set();
    wire.listener = createServer((near) => {
      if (wire.broken) {
        near.destroy();
        return;
      }
      const far = connect({ host: "127.0.0.1", port: Number(new URL(server.url).port) });
      for (const [a, b] of [[near, far], [far, near]]) {
        wire.open.add(a);
        a.pipe(b);
        a.on("error", () => b.destroy()).on("close", () => {
          wire.open.delete(a);
          b.destroy();
        });
      }
    });
    await new Promise((resolve) => wire.listener.listen(0, "127.0.0.1", resolve));
    wire.url = `http://127.0.0.1:${wire.listener.address().port}`;
    return wire;
  }

  cut() {
    this.broken = true;
    for (const socket of this.open) socket.destroy();
  }

  mend() {
    this.broken = false;
  }

  close() {
    this.cut();
    this.listener.close();
  }
}

const lines = (page) => page.locator("#log-lines");

test("a log is filtered by stream, searched, wrapped, followed, downloaded and linked to", async () => {
  const job = await server.submit(
    script(
      "talks",
      `for i in $(seq 1 3000); do echo "out $i"; done
sleep 0.3 # the streams are two pipes: what is written at once to both may change places
echo "err one" >&2
echo "code=417 took 12ms"
printf 'wide %0400d end-of-wide\\n' 7
sleep 0.3
echo "Traceback (most recent call last):" >&2
echo "ValueError: no" >&2
for i in $(seq 3001 6000); do echo "out $i"; done
while [ ! -e "$MUSTER_OUT/../stop" ]; do echo "tick $(date +%s%N)"; sleep 0.2; done`,
    ),
  );
  await server.job(job.id, "running");
  await until("its output is there", async () => (await (await fetch(`${server.url}/api/v1/tasks/${job.id}.0/logs`, { headers: { Authorization: `Bearer ${adminToken}` } }).then((r) => r.text())).includes("out 6000")));
  const page = await browser.page(server);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.goto(`${server.url}/tasks/${job.id}.0?tab=log`);
  const log = lines(page);
  // Follows: the last line that is shown is a newer one each time, and the button says so.
  await log.getByText(/^tick \d+$/).first().waitFor();
  const newest = () => log.getByText(/^tick \d+$/).last().innerText();
  const seen = await newest();
  await until("a newer line is shown", async () => (await newest()) !== seen);
  await page.getByRole("button", { name: "Following" }).click();
  await page.getByRole("button", { name: "Follow", exact: true }).waitFor();

  // The first error, and a link to it.
  await page.getByRole("button", { name: "First error" }).click();
  await log.getByText("Traceback (most recent call last):").waitFor();
  const at = await until("the line is in the address", () => new URL(page.url()).searchParams.get("at"));
  await page.getByRole("button", { name: "More about this log" }).click();
  await page.getByRole("menuitem", { name: "Copy a link to the marked line" }).click();
  const link = await until("the link is copied", () => page.evaluate(() => navigator.clipboard.readText()));
  assert.equal(new URL(link).searchParams.get("at"), at);
  const other = await page.context().newPage();
  await other.goto(link);
  await lines(other).getByText("Traceback (most recent call last):").waitFor();
  await other.close();

  // The text of both streams begins in the same column.
  const left = (text) => log.locator("[data-offset] > span", { hasText: text }).first().evaluate((e) => e.getBoundingClientRect().left);
  assert.equal(await left("code=417 took 12ms"), await left("err one"));

  // Long lines are wrapped or not.
  const wide = log.getByText(/end-of-wide/);
  await wide.waitFor();
  const height = () => wide.evaluate((e) => e.closest("[data-offset]").getBoundingClientRect().height);
  const wrapped = await height();
  await page.getByRole("button", { name: "Wrap long lines" }).click();
  await until("the line is one row high", async () => (await height()) < wrapped);
  await page.getByRole("button", { name: "Wrap long lines" }).click();

  // A search over the whole log on the server, with a regular expression.
  const field = page.getByLabel("Search the whole log");
  await page.getByRole("button", { name: "Regular expression (RE2)" }).click();
  await field.fill("code=[0-9]{3} took \\d+ms");
  await field.press("Enter");
  await page.getByRole("search").getByRole("status").getByText(/^1 of 1$/).waitFor();
  await log.getByText("code=417 took 12ms").waitFor();
  await field.fill("out [56]00$");
  await field.press("Enter");
  await page.getByRole("search").getByRole("status").getByText(/of 2$/).waitFor();
  await field.fill("out (");
  browser.expected.push(/400|422/);
  await field.press("Enter");
  await page.getByRole("search").getByRole("status").getByText("search failed").waitFor();
  await page.getByRole("alert").getByText(/is not a regular expression.*missing closing \)/).waitFor();
  await accessible(page);
  await shot(page, "log-search");
  await page.getByRole("button", { name: "Clear the search" }).click();

  // Streams.
  await page.getByText("stderr", { exact: true }).click();
  await log.getByText("err one").waitFor();
  await log.getByText("ValueError: no").waitFor();
  assert.equal(await log.getByText(/^(out|tick)/).count(), 0);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    (async () => {
      await page.getByRole("button", { name: "More about this log" }).click();
      await page.getByRole("menuitem", { name: "Download stderr" }).click();
    })(),
  ]);
  assert.equal(readFileSync(await download.path(), "utf8"), "err one\nTraceback (most recent call last):\nValueError: no\n");
  await server.api("POST", `/jobs/${job.id}/cancel`, {});
  await server.job(job.id, "cancelled");
});

test("a shared link that expires while it is open says so, and asks no more", async () => {
  const job = await server.submit(script("shared for a moment", "sleep 600"));
  await server.job(job.id, "running");
  const link = await server.api("POST", `/jobs/${job.id}/share`, { ttl: 4 });
  browser.expected.push(/401/, gone);
  const page = await browser.page(server, { token: null });
  await page.goto(server.url + link.url);
  await heading(page, /shared for a moment/);
  await page.getByText("This link is no longer valid").waitFor();
  await accessible(page);
  await shot(page, "link-expired");
  // The job changes, which a page that still watches would read.
  let asked = 0;
  page.on("request", (r) => r.url().includes("/api/") && asked++);
  await server.api("POST", `/jobs/${job.id}/cancel`, {});
  await server.job(job.id, "cancelled");
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  assert.equal(asked, 0, `${asked} requests in 5 s`);
  // What it showed is still there to be read behind the message.
  await page.getByRole("heading", { level: 1, name: /shared for a moment/, includeHidden: true }).waitFor({ state: "attached" });
});

test("a hidden tab catches up when it is shown again", async () => {
  const page = await browser.page(server);
  await page.goto(`${server.url}/jobs?name=sleeper`);
  await page.getByText("No job matches").waitFor();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
  const job = await server.submit(script("sleeper", "true"));
  await server.job(job.id, "succeeded");
  await cdp.send("Page.setWebLifecycleState", { state: "active" });
  const row = page.getByTestId("table-jobs").getByRole("row").filter({ hasText: "sleeper" });
  await row.getByText("succeeded").waitFor();
});

test("a page whose events were overrun while it was away reads everything again", async () => {
  browser.expected.push(gone);
  const watched = await server.submit(script("watched", "sleep 600"));
  await server.job(watched.id, "running");
  const wire = await Wire.to(server);
  const page = await browser.page(wire);
  await page.goto(`${wire.url}/jobs`);
  await page.getByTestId("connection").getByText("Live").waitFor();
  await page.getByTestId("table-jobs").getByRole("row").filter({ hasText: "watched" }).getByText("running").waitFor();
  const again = page.waitForRequest((r) => r.url().includes("/api/v1/events") && r.headers()["last-event-id"] !== undefined);
  wire.cut();
  await page.getByTestId("connection-lost").waitFor();
  await server.api("POST", `/jobs/${watched.id}/cancel`, {});
  await server.job(watched.id, "cancelled");
  // The server keeps 10,000 events: the one that cancelled is not among these any more.
  const flood = await server.submit({ name: "flood", kind: "noop", array: "0-7999" });
  await server.job(flood.id, "succeeded");
  wire.mend();
  // The stream of the place where the page was begins with that there is more than it can give.
  const place = (await again).headers()["last-event-id"];
  const stream = await fetch(`${server.url}/api/v1/events`, { headers: { Authorization: `Bearer ${adminToken}`, Accept: "text/event-stream", "Last-Event-ID": place } });
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  let said = "";
  while (!/\n\n.*\n\n/s.test(said)) said += (await reader.read()).value;
  await reader.cancel();
  assert.match(said, /event: ?resync/);
  await page.getByTestId("table-jobs").getByRole("row").filter({ hasText: "watched" }).getByText("cancelled").waitFor();
  await page.getByTestId("table-jobs").getByRole("row").filter({ hasText: "flood" }).getByText("succeeded").waitFor();
  wire.close();
});

test("a long log opens at its end, jumps anywhere, and is not kept in memory", async (t) => {
  const line = "a line of eighty bytes, which is about what programs write at a time, and no 0";
  const job = await server.submit(script("long log", `yes '${line}' | head -c ${logMiB * 1024 * 1024}; echo; echo the very end`));
  await until("it has ended", async () => ["succeeded", "failed"].includes((await server.api("GET", `/jobs/${job.id}`)).state), 600_000);
  const size = await until("its log is complete", async () => (await server.api("GET", `/tasks/${job.id}.0`)).log_size);
  assert.ok(size > logMiB * 1024 * 1024, `the log has ${size} bytes`);
  const page = await browser.page(server);
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    return (await cdp.send("Runtime.getHeapUsage")).usedSize / 2 ** 20;
  };
  const timed = async (what, action) => {
    const began = performance.now();
    await action();
    const took = Math.round(performance.now() - began);
    t.diagnostic(`${what}: ${took} ms`);
    return took;
  };
  await page.goto(`${server.url}/jobs`);
  await heading(page, "Jobs");
  const before = await heap();
  const log = lines(page);
  const first = log.locator('[data-offset="0"]');
  const last = log.getByText("the very end", { exact: true });
  const opened = await timed("open at the end", async () => {
    await page.goto(`${server.url}/tasks/${job.id}.0?tab=log`);
    await last.waitFor();
  });
  const begun = await timed("jump to the beginning", async () => {
    await page.getByRole("button", { name: "Beginning" }).click();
    await first.waitFor();
  });
  const rail = page.getByRole("scrollbar", { name: "Place in the whole log" });
  for (const part of [0.25, 0.5, 0.75]) {
    await timed(`jump to ${part * 100} %`, async () => {
      const box = await rail.boundingBox();
      await page.mouse.click(box.x + box.width / 2, box.y + box.height * part);
      const near = ([from, to]) => [...document.querySelectorAll("#log-lines [data-offset]")].some((e) => Number(e.dataset.offset) > from && Number(e.dataset.offset) < to);
      await page.waitForFunction(near, [size * (part - 0.05), size * (part + 0.05)]);
    });
  }
  const ended = await timed("jump to the end", async () => {
    await page.getByRole("button", { name: "End", exact: true }).click();
    await last.waitFor();
  });
  await page.getByRole("button", { name: "Beginning" }).click();
  await first.waitFor();
  await timed("search for the last line from the first one", async () => {
    await page.getByLabel("Search the whole log").fill("very end");
    await page.getByLabel("Search the whole log").press("Enter");
    await page.getByRole("search").getByRole("status").getByText(/^1 of 1$/).waitFor({ timeout: 120_000 });
    await last.waitFor();
  });
  const grown = (await heap()) - before;
  t.diagnostic(`JavaScript heap: ${before.toFixed(1)} MiB, and ${grown.toFixed(1)} MiB more at last, with a log of ${(size / 2 ** 20).toFixed(0)} MiB`);
  assert.ok(Math.max(opened, begun, ended) < 5_000, "each within 5 s");
  assert.ok(grown < 32, `the heap has grown by ${grown.toFixed(1)} MiB`);
});

test("a range that is dragged on an axis is kept in its values, in the address", async () => {
  const job = await server.submit({
    name: "ranges",
    tasks: [{ name: "try", kind: "script", run: 'printf \'{"loss": %s}\' "$LR" > "$MUSTER_OUT/result.json"', matrix: { lr: [0.1, 0.2, 0.3, 0.4] }, env: { LR: "${matrix.lr}" } }],
  });
  await server.job(job.id, "succeeded");
  const page = await browser.page(server);
  await page.goto(`${server.url}/jobs/${job.id}?tab=results&view=parallel`);
  const plot = await page.getByTestId("parallel").boundingBox();
  // The first axis is lr; its upper half is from 0.25 on.
  const [x, top, middle] = [plot.x + 54, plot.y + 46, plot.y + (46 + plot.height - 22) / 2];
  await page.mouse.move(x, middle);
  await page.mouse.down();
  await page.mouse.move(x, (top + middle) / 2);
  await page.mouse.move(x, top - 5);
  await page.mouse.up();
  await page.getByText("2 runs of 4").waitFor();
  const ranges = await until("the range is in the address", () => JSON.parse(new URL(page.url()).searchParams.get("ranges")));
  assert.equal(ranges["param:lr"][1], 0.4);
  assert.ok(Math.abs(ranges["param:lr"][0] - 0.25) < 0.01, JSON.stringify(ranges));
  await page.reload();
  await page.getByText("2 runs of 4").waitFor();
  await page.getByRole("button", { name: "Ranges" }).click();
  await page.getByLabel("lr from").fill("0.35");
  await page.getByLabel("lr from").press("Enter");
  await page.getByText("1 run of 4").waitFor();
  await accessible(page);
  await shot(page, "results-ranges");
});
