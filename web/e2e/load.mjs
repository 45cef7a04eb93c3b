// Measures frame times and memory of the dashboard in a real browser, for BenchmarkDashboard in test/load. Reads {url, token, job, seconds}
// from standard input, and prints a list of what it measured on each page.
//
// A frame takes long if the page has much to do, or if the machine gives the browser no processor. To tell these apart there are three measures: the
// time from one frame to the next, the longest task by the clock, and the processor time that the page's main thread used for a frame.
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { url, token, job, seconds } = JSON.parse(readFileSync(0, "utf8"));
const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const others = Math.min(60, seconds / 4);
const traced = Math.min(15, others / 2);

/** What is measured: name, path, what shows that the data is there, for how long, and what to do meanwhile. The last one stays for all of the time. */
const pages = [
  { name: "jobs", path: "/jobs", ready: "[data-row]", stay: others },
  { name: "workers", path: "/workers", ready: "[data-row]", stay: others, act: scroll },
  { name: "tasks", path: `/jobs/${job}?tab=tasks`, ready: "[data-row]", stay: others, act: scroll },
  { name: "elements", path: `/jobs/${job}?tab=elements`, ready: "[data-testid=array]", stay: others, act: zoom },
  { name: "overview", path: "/", ready: "main canvas[role=application]", stay: seconds },
];

async function scroll(page, step) {
  await page.mouse.move(700, 600);
  await page.mouse.wheel(0, step % 20 < 10 ? 400 : -400);
}

/** Moves over the cells, and zooms in and out. */
async function zoom(page, step) {
  await page.mouse.move(400 + (step % 40) * 10, 500);
  if (step % 10 !== 0) return;
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, step % 20 === 0 ? -480 : 480);
  await page.keyboard.up("Control");
}

/** Metrics of the page; those of time are the processor time of its main thread in seconds. */
async function metrics(cdp) {
  const answer = await cdp.send("Performance.getMetrics");
  return Object.fromEntries(answer.metrics.map((m) => [m.name, m.value]));
}

/** Returns the JavaScript heap in bytes after a garbage collection. */
async function heap(cdp) {
  await cdp.send("HeapProfiler.collectGarbage");
  return (await metrics(cdp)).JSHeapUsedSize;
}

function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? 0 : sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];
}

/** In the page: counts frames by their milliseconds, and the tasks of 50 ms and more. A histogram does not grow as the page's own memory would. */
function watch() {
  const w = { frames: new Uint32Array(2000), tasks: 0, longest: 0 };
  window.measured_ = w;
  let last = performance.now();
  const frame = (now) => {
    w.frames[Math.min(w.frames.length - 1, Math.max(0, Math.round(now - last)))]++;
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) {
      w.tasks++;
      w.longest = Math.max(w.longest, e.duration);
    }
  }).observe({ type: "longtask" });
}

/** The smallest number of milliseconds that a share of the frames do not exceed. */
function ofHistogram(frames, q) {
  let left = q * frames.reduce((a, b) => a + b, 0);
  for (let ms = 0; ms < frames.length; ms++) {
    left -= frames[ms];
    if (left <= 0 && frames[ms] > 0) return ms;
  }
  return frames.findLastIndex((n) => n > 0);
}

/** Counts the events of the server's stream while work runs, beside the page. */
async function eventsRate(duration) {
  const stop = AbortSignal.timeout(duration);
  let events = 0;
  try {
    const answer = await fetch(`${url}/api/v1/events`, { headers: { Authorization: `Bearer ${token}` }, signal: stop });
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of answer.body) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split("\nid: ");
      events += parts.length - 1;
      rest = parts.at(-1).slice(-4);
    }
  } catch (err) {
    if (!stop.aborted) throw err;
  }
  return events / (duration / 1000);
}

/** Processor milliseconds of the main thread for each frame, from a trace of what it does between the callbacks of two frames. */
async function traceFrames(cdp, work) {
  const events = [];
  const collect = (e) => events.push(...e.value);
  cdp.on("Tracing.dataCollected", collect);
  await cdp.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "devtools.timeline"], excludedCategories: ["*"] } });
  await work();
  const complete = new Promise((resolve) => cdp.once("Tracing.tracingComplete", resolve));
  await cdp.send("Tracing.end");
  await complete;
  cdp.off("Tracing.dataCollected", collect);
  const thread = (e) => `${e.pid}:${e.tid}`;
  const count = new Map();
  for (const e of events) if (e.name === "FireAnimationFrame") count.set(thread(e), (count.get(thread(e)) ?? 0) + 1);
  const main = [...count].sort((a, b) => b[1] - a[1])[0]?.[0];
  const mine = events.filter((e) => e.ph === "X" && thread(e) === main).sort((a, b) => a.ts - b.ts);
  const tasks = mine.filter((e) => e.name.endsWith("RunTask"));
  const cpu = [];
  let i = 0;
  let from = -Infinity;
  // A page may have several callbacks in one frame: those of less than a millisecond apart are one.
  for (const { ts } of mine.filter((e) => e.name === "FireAnimationFrame")) {
    if (ts - from < 1000) continue;
    let sum = 0;
    for (; i < tasks.length && tasks[i].ts < ts; i++) if (tasks[i].ts >= from) sum += (tasks[i].tdur ?? 0) / 1000;
    if (from > -Infinity) cpu.push(sum);
    from = ts;
  }
  return cpu;
}

async function stay(page, act, duration) {
  const end = performance.now() + duration * 1000;
  for (let step = 0; performance.now() < end; step++) {
    if (act) await act(page, step);
    await page.waitForTimeout(100);
  }
}

async function measure(page, cdp, { name, path, ready, stay: duration, act }) {
  const began = performance.now();
  await page.goto(url + path);
  await page.waitForSelector(ready, { timeout: 60_000 });
  const loaded = performance.now() - began;
  await page.waitForTimeout(3000);
  // What the page remembers on purpose fills up in the first minute.
  await stay(page, act, Math.min(60, duration / 4));
  const requests = new Map();
  const count = (r) => requests.set(r.url(), (requests.get(r.url()) ?? 0) + 1);
  const heapFirst = await heap(cdp);
  await page.evaluate(watch);
  const before = await metrics(cdp);
  page.on("request", count);
  // Memory that grows without end, and memory that fills up to a limit, begin alike: the heap is read at each sixth of a long time.
  const parts = duration >= 600 ? 6 : 1;
  const heaps = [];
  for (let part = 1; part <= parts; part++) {
    await stay(page, act, duration / parts);
    if (part < parts) heaps.push(await heap(cdp));
  }
  page.off("request", count);
  const after = await metrics(cdp);
  const { frames, tasks, longest } = await page.evaluate(() => ({ ...window.measured_, frames: [...window.measured_.frames] }));
  const heapLast = await heap(cdp);
  const cpu = await traceFrames(cdp, () => stay(page, act, traced));
  return {
    name,
    loaded,
    frame_p50: ofHistogram(frames, 0.5),
    frame_p99: ofHistogram(frames, 0.99),
    frame_max: ofHistogram(frames, 1),
    cpu_p50: quantile(cpu, 0.5),
    cpu_p99: quantile(cpu, 0.99),
    cpu_max: quantile(cpu, 1),
    busy: (after.TaskDuration - before.TaskDuration) / duration,
    long_tasks: tasks,
    longest_task: longest,
    requests: [...requests.values()].reduce((a, b) => a + b, 0) / duration,
    heap_first: heapFirst,
    heaps,
    heap_last: heapLast,
    events_rate: await eventsRate(5000),
  };
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--enable-precise-memory-info"] });
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const signIn = await context.request.post(`${url}/api/v1/session`, { data: { token }, headers: { Origin: url } });
  if (!signIn.ok()) throw new Error(`sign in: ${signIn.status()} ${await signIn.text()}`);
  const page = await context.newPage();
  page.on("pageerror", (err) => console.error(String(err)));
  const cdp = await context.newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  await cdp.send("HeapProfiler.enable");
  const measured = [];
  for (const p of pages) {
    const m = await measure(page, cdp, p);
    console.error(JSON.stringify(m));
    measured.push(m);
  }
  console.log(JSON.stringify(measured));
} finally {
  await browser.close();
}
