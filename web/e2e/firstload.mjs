// Measures the first load of a web page in a new browser each time, of Muster or of any other server:
//
//   node e2e/firstload.mjs [-n VISITS] [-H 'NAME: VALUE'] URL SELECTOR
//
// SELECTOR is what shows that the page has its data. Prints the median of the visits: kilobytes over the network, requests, milliseconds until the
// first text or image is painted, until SELECTOR is there, and until the page then makes frames of less than 50 ms (it is interactive), and the
// processor milliseconds of the main thread until then.
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({ allowPositionals: true, options: { n: { type: "string", short: "n", default: "7" }, header: { type: "string", short: "H", multiple: true, default: [] } } });
const [url, selector] = positionals;
const visits = Number(values.n);
if (!url || !selector || !(visits > 0)) {
  console.error("usage: node e2e/firstload.mjs [-n VISITS] [-H 'NAME: VALUE'] URL SELECTOR");
  process.exit(2);
}
const headers = Object.fromEntries(values.header.map((h) => [h.slice(0, h.indexOf(":")), h.slice(h.indexOf(":") + 1).trim()]));

async function visit(browser) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, extraHTTPHeaders: headers });
  try {
    const page = await context.newPage();
    const cdp = await context.newCDPSession(page);
    await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
    await cdp.send("Network.enable");
    let bytes = 0;
    let requests = 0;
    cdp.on("Network.loadingFinished", (e) => (bytes += e.encodedDataLength));
    cdp.on("Network.requestWillBeSent", () => requests++);
    // The page takes these times itself, so that no message to the browser counts.
    await page.addInitScript((wanted) => {
      const times = (window.times_ = {});
      let last = 0;
      let short = 0;
      const frame = (now) => {
        short = now - last < 50 ? short + 1 : 0;
        last = now;
        if (times.shown === undefined) {
          if (document.querySelector(wanted)) [times.shown, short] = [now, 0];
        } else if (short === 2) {
          times.interactive = now;
          return;
        }
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }, selector);
    await page.goto(url, { waitUntil: "commit" });
    await page.waitForFunction(() => window.times_?.interactive !== undefined, undefined, { timeout: 60_000 });
    const times = await page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime, ...window.times_ }));
    const { metrics } = await cdp.send("Performance.getMetrics");
    const cpu = metrics.find((m) => m.name === "TaskDuration").value * 1000;
    await page.waitForTimeout(500); // what is loaded afterwards counts among the bytes
    return { kB: bytes / 1000, requests, ...times, cpu };
  } finally {
    await context.close();
  }
}

const median = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
const browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  const all = [];
  for (let i = 0; i < visits; i++) all.push(await visit(browser));
  console.log(JSON.stringify(Object.fromEntries(Object.keys(all[0]).map((k) => [k, Math.round(median(all.map((v) => v[k])))]))));
} finally {
  await browser.close();
}
