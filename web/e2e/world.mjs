// A real server with a worker, a browser, and what tests do with them.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { violationsOf } from "./axe.mjs";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
export const muster = process.env["MUSTER"] ?? join(here, "..", "..", "bin", "muster");
/** Screenshots, which people look at; not committed. */
export const shots = join(here, "screenshots");
const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
export const adminToken = "e2e-admin-token-0123456789";

async function freePort() {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.on("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** Waits until what returns a value that counts; its last error is the reason if that does not happen in time. */
export async function until(what, check, limit = 60_000) {
  const end = Date.now() + limit;
  let last;
  for (;;) {
    try {
      const value = await check();
      if (value) return value;
      last = value;
    } catch (e) {
      last = e;
    }
    if (Date.now() > end) throw new Error(`${what}: not within ${limit / 1000} s (last: ${last instanceof Error ? last.message : JSON.stringify(last)})`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** `muster up`, or a server without a worker, on a port of its own, which stays the same over restarts. */
export class Server {
  constructor(port, folder, empty) {
    this.url = `http://127.0.0.1:${port}`;
    this.empty = empty;
    this.folder = folder;
    this.workers = [];
    this.env = { ...process.env, MUSTER_CONFIG: join(folder, "context.json"), MUSTER_ADMIN_TOKEN: adminToken, MUSTER_JOIN_TOKEN: "e2e-join-token-0123456789" };
  }

  /** With variables of the environment beside those of this process; empty has no worker. */
  static async start(env = {}, { empty = false } = {}) {
    const server = new Server(await freePort(), mkdtempSync(join(tmpdir(), "muster-web-")), empty);
    Object.assign(server.env, env);
    await server.run();
    return server;
  }

  async run() {
    const log = [];
    const command = this.empty ? ["server"] : ["up", "--name", "first", "--heartbeat", "1s"];
    this.process = spawn(muster, [...command, "--listen", this.url.slice("http://".length), "--data", join(this.folder, "data")], { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on("data", (b) => log.push(b.toString()));
    this.log = () => log.join("");
    this.ended = new Promise((resolve) => this.process.on("exit", resolve));
    await until("the server answers", async () => {
      if (this.process.exitCode !== null) throw new Error(`muster ${command[0]} ended with ${this.process.exitCode}: ${this.log()}`);
      return (await fetch(`${this.url}/readyz`)).ok;
    });
    if (!this.empty) await until("its worker is connected", async () => (await this.api("GET", "/workers")).workers.some((w) => w.name === "first" && w.state === "active"));
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }

  async stop() {
    await Promise.all(this.workers.map((kill) => kill()));
    this.process.kill("SIGTERM");
    setTimeout(() => this.process.kill("SIGKILL"), 20_000).unref();
    await this.ended;
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }

  async api(method, path, body, token = adminToken) {
    const answer = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }

  submit(spec) {
    return this.api("POST", "/jobs", spec);
  }

  /** Starts another worker, which ends with the server at the latest. */
  worker(name, env = {}) {
    const folder = mkdtempSync(join(this.folder, `${name}-`));
    const log = [];
    const args = ["worker", "--server", this.url, "--name", name, "--data", join(folder, "data"), "--cool-down", "0"];
    const child = spawn(muster, args, { cwd: folder, env: { ...this.env, HOME: folder, MUSTER_CONFIG: join(folder, "context.json"), ...env }, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (b) => log.push(b.toString()));
    const ended = new Promise((resolve) => child.on("exit", resolve));
    const kill = (signal = "SIGKILL") => (child.kill(signal), ended);
    this.workers.push(kill);
    return { folder, log: () => log.join(""), kill };
  }

  /** Waits until a worker is as it should be. */
  workerIs(name, what, check) {
    return until(`worker ${name} is ${what}`, async () => {
      const worker = (await this.api("GET", "/workers")).workers.find((w) => w.name === name);
      return worker && check(worker) ? worker : undefined;
    });
  }

  /** Waits until a job is in one of some states. */
  job(id, ...states) {
    return until(`job ${id} is ${states.join(" or ")}`, async () => {
      const job = await this.api("GET", `/jobs/${id}`);
      return states.includes(job.state) ? job : undefined;
    });
  }
}

/** A browser whose pages must log no errors, except those that a test expects. */
export class Browser {
  constructor(browser) {
    this.browser = browser;
    this.problems = [];
    this.expected = [];
  }

  static async start() {
    mkdirSync(shots, { recursive: true });
    return new Browser(await chromium.launch({ executablePath, args: ["--no-sandbox"] }));
  }

  /** A page of its own session; with token null it is not signed in. */
  async page(server, { token = adminToken, width = 1280, height = 900, scheme = "light" } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", acceptDownloads: true });
    context.setDefaultTimeout(30_000);
    if (token) {
      const answer = await context.request.post(`${server.url}/api/v1/session`, { data: { token }, headers: { Origin: server.url } });
      if (!answer.ok()) throw new Error(`sign in: ${answer.status()} ${await answer.text()}`);
    }
    const page = await context.newPage();
    page.on("console", (m) => m.type() === "error" && this.problem(page, m.text()));
    page.on("pageerror", (e) => this.problem(page, String(e)));
    return page;
  }

  problem(page, text) {
    if (!this.expected.some((e) => e.test(text))) this.problems.push(`${page.url()}: ${text}`);
  }

  /** Fails if a page had errors since the last call. */
  clean() {
    const list = this.problems.splice(0);
    if (list.length > 0) throw new Error(`errors in the browser's console:\n${list.join("\n")}`);
  }

  stop() {
    return this.browser.close();
  }
}

/** Fails if axe finds something serious on the page as it is. */
export async function accessible(page) {
  const found = await violationsOf(page);
  if (found.length > 0) throw new Error(`axe on ${page.url()}:\n${found.join("\n")}`);
}

export function script(text, cwd, env) {
  return spawn("sh", ["-c", text], { cwd, env, stdio: ["ignore", "pipe", "pipe"], detached: true });
}

export { mkdtempSync, tmpdir };
