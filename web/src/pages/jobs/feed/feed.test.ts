import { describe, expect, it, vi } from "vitest";
import { ApiError } from "@/api/error";
import type { LiveEvent } from "@/api/live";
import type { Job, Task } from "@/api/types";
import { validateJob } from "../search";
import { JobFeed, type ReadJobs } from "./jobs";
import { numbersOf, spansOf, TaskFeed, type ReadTasks } from "./tasks";

const job = (id: number, state: Job["state"] = "running"): Job => ({ id, name: `j${id}`, project: "p", priority: 50, state, counts: {} });
const event = (x: Partial<LiveEvent>): LiveEvent => ({ epoch: "e", seq: 1, type: "job", at: "", ...x });

/** A server with jobs, which answers pages as the API does: newest first, those below the cursor. */
function server(jobs: Map<number, Job>) {
  return vi.fn<ReadJobs>((page) => {
    const all = [...jobs.values()].sort((a, b) => b.id - a.id).filter((j) => !page.cursor || j.id < Number(page.cursor));
    const some = all.slice(0, page.limit);
    return Promise.resolve({ jobs: some, ...(all.length > some.length && { next: String(some[some.length - 1]?.id) }) });
  });
}
const ids = (feed: JobFeed) => feed.get().rows.map((j) => j.id);
async function jobFeed(n: number) {
  const jobs = new Map(Array.from({ length: n }, (_, i) => [i + 1, job(i + 1)]));
  const read = server(jobs);
  const feed = new JobFeed(read, true);
  await feed.load();
  return { jobs, read, feed };
}

describe("JobFeed", () => {
  it("loads pages until there are no more", async () => {
    const { feed } = await jobFeed(150);
    expect(feed.get()).toMatchObject({ status: "ready", more: true });
    expect(ids(feed)[0]).toBe(150);
    await feed.more();
    expect(ids(feed)).toHaveLength(150);
    expect(feed.get().more).toBe(false);
  });
  it("shows new jobs at once at the top, and holds them back below it", async () => {
    const { jobs, feed } = await jobFeed(3);
    jobs.set(4, job(4));
    feed.note({ events: [event({ job: 4 })], resync: false });
    await feed.tick(0);
    expect(ids(feed)).toEqual([4, 3, 2, 1]);
    feed.view([3], true);
    jobs.set(5, job(5));
    jobs.set(6, job(6));
    feed.note({ events: [event({ job: 5 }), event({ job: 6 })], resync: false });
    await feed.tick(10_000);
    expect(ids(feed)).toEqual([4, 3, 2, 1]);
    expect(feed.get().fresh).toBe(2);
    feed.view([3], false);
    expect(ids(feed)).toEqual([6, 5, 4, 3, 2, 1]);
    expect(feed.get().fresh).toBe(0);
  });
  it("reads again only what changed and is in view, once a second at most", async () => {
    const { jobs, read, feed } = await jobFeed(50);
    feed.view([10, 11, 12], false);
    jobs.set(11, job(11, "failed"));
    jobs.set(40, job(40, "failed"));
    read.mockClear();
    feed.note({ events: [event({ type: "task", task: "11.3" }), event({ type: "task", task: "40.0" })], resync: false });
    await feed.tick(0);
    expect(read).toHaveBeenCalledTimes(1);
    expect(read.mock.calls[0]?.[0]).toMatchObject({ cursor: "12" });
    expect(feed.get().rows.find((j) => j.id === 11)?.state).toBe("failed");
    expect(feed.get().rows.find((j) => j.id === 40)?.state).toBe("running");
    feed.note({ events: [event({ type: "task", task: "11.4" })], resync: false });
    await feed.tick(500);
    expect(read).toHaveBeenCalledTimes(1);
    await feed.tick(1_500);
    expect(read).toHaveBeenCalledTimes(2);
  });
  it("keeps a row that stops matching while the list is held", async () => {
    const { jobs, feed } = await jobFeed(3);
    feed.view([3, 2, 1], true);
    jobs.delete(2);
    feed.note({ events: [event({ job: 2 })], resync: false });
    await feed.tick(0);
    expect(ids(feed)).toEqual([3, 2, 1]);
    expect([...feed.get().left]).toEqual([2]);
    feed.view([3, 2, 1], false);
    expect(ids(feed)).toEqual([3, 1]);
  });
  it("begins again at the top when more came than it reads", async () => {
    const { jobs, feed } = await jobFeed(10);
    for (let i = 11; i <= 700; i++) jobs.set(i, job(i));
    feed.note({ events: [event({ job: 700 })], resync: false });
    await feed.tick(0);
    expect(ids(feed)[0]).toBe(700);
    expect(ids(feed)).toHaveLength(500);
    await feed.more();
    expect(ids(feed)[500]).toBe(200);
  });
  it("says that it failed, and that rows may be old", async () => {
    const read = vi.fn<ReadJobs>(() => Promise.reject(new Error("no")));
    const feed = new JobFeed(read, true);
    await feed.load();
    expect(feed.get().status).toBe("failed");
    await feed.tick(0);
    expect(feed.get().status).toBe("failed");
    read.mockImplementation(() => Promise.resolve({ jobs: [job(1)] }));
    feed.note({ events: [], resync: true });
    await feed.tick(0);
    expect(feed.get()).toMatchObject({ status: "ready" });
    expect(ids(feed)).toEqual([1]);
    const { feed: other, read: later } = await jobFeed(3);
    later.mockImplementation(() => Promise.reject(new Error("no")));
    other.view([3], false);
    other.note({ events: [event({ job: 3 })], resync: false });
    await other.tick(0);
    expect(other.get()).toMatchObject({ status: "ready", stale: true });
  });
  it("looks for new jobs again after a look that failed", async () => {
    const { jobs, read, feed } = await jobFeed(3);
    jobs.set(4, job(4));
    read.mockImplementationOnce(() => Promise.reject(new Error("no")));
    feed.note({ events: [event({ job: 4 })], resync: false });
    await feed.tick(0);
    expect(feed.get().stale).toBe(true);
    await feed.tick(60_000);
    expect(ids(feed)).toEqual([4, 3, 2, 1]);
    expect(feed.get().stale).toBe(false);
  });
  it("says that the next page failed until it came", async () => {
    const { read, feed } = await jobFeed(150);
    const no = new Error("no");
    read.mockImplementationOnce(() => Promise.reject(no));
    await feed.more();
    expect(feed.get()).toMatchObject({ status: "ready", error: no, more: true, loadingMore: false });
    await feed.more();
    expect(feed.get().error).toBeUndefined();
    expect(ids(feed)).toHaveLength(150);
  });
});

const task = (index: number, x: Partial<Task> = {}): Task => ({ id: `1.${index}`, job: 1, index, group: 0, name: "t", kind: "noop", state: "running", ...x });

describe("TaskFeed", () => {
  const make = async (tasks: Map<number, Task>, options = {}) => {
    const read = vi.fn<ReadTasks>((page) => {
      const wanted = page.tasks?.split(",").flatMap((p) => {
        const [a = 0, b = a] = p.split("-").map(Number);
        return Array.from({ length: b - a + 1 }, (_, i) => a + i);
      });
      const all = [...tasks.values()].filter((t) => (!page.cursor || t.index > Number(page.cursor)) && (!wanted || wanted.includes(t.index)));
      const some = all.slice(0, page.limit);
      return Promise.resolve({ tasks: some, ...(all.length > some.length && { next: String(some[some.length - 1]?.index) }) });
    });
    const feed = new TaskFeed(1, read, { states: [], page: 10, auto: 20, max: 40, ...options });
    await feed.load();
    return { read, feed };
  };
  it("loads so many by itself, the rest when asked, and never more than the most", async () => {
    const { feed } = await make(new Map(Array.from({ length: 100 }, (_, i) => [i, task(i)])));
    expect(feed.get().rows).toHaveLength(20);
    for (let i = 0; i < 5; i++) await feed.more();
    expect(feed.get()).toMatchObject({ more: false });
    expect(feed.get().rows).toHaveLength(40);
  });
  it("loads again when the server is back", async () => {
    const { feed, read } = await make(new Map([[0, task(0)]]));
    const answer = read.getMockImplementation();
    read.mockImplementation(() => Promise.reject(new Error("no")));
    const lost = new TaskFeed(1, read, { states: [], page: 10, auto: 20, max: 40 });
    await lost.load();
    expect(lost.get().status).toBe("failed");
    if (answer) read.mockImplementation(answer);
    lost.note({ events: [], resync: true });
    await lost.tick(0);
    expect(lost.get()).toMatchObject({ status: "ready" });
    expect(lost.get().rows).toEqual(feed.get().rows);
  });
  it("keeps what it shows and where it continues when a reload fails, and loads again later", async () => {
    const tasks = new Map(Array.from({ length: 30 }, (_, i) => [i, task(i)]));
    const { feed, read } = await make(tasks);
    const no = new Error("no");
    read.mockImplementationOnce(() => Promise.reject(no));
    feed.note({ events: [], resync: true });
    await feed.tick(0);
    expect(feed.get()).toMatchObject({ status: "ready", error: no, more: true });
    expect(feed.get().rows).toHaveLength(20);
    await feed.more();
    expect(feed.get().rows).toHaveLength(30);
    tasks.set(0, task(0, { state: "failed" }));
    await feed.tick(60_000);
    expect(feed.get().error).toBeUndefined();
    expect(feed.get().rows[0]?.state).toBe("failed");
  });
  it("does not try again by itself what the server refuses", async () => {
    const { feed, read } = await make(new Map([[0, task(0)]]));
    const refused = new ApiError("forbidden", 403, "no");
    read.mockImplementation(() => Promise.reject(refused));
    feed.note({ events: [], resync: true });
    await feed.tick(0);
    read.mockClear();
    await feed.tick(60_000);
    expect(read).not.toHaveBeenCalled();
    expect(feed.get().error).toBe(refused);
  });
  it("tries the page again that failed", async () => {
    const { feed, read } = await make(new Map(Array.from({ length: 30 }, (_, i) => [i, task(i)])));
    read.mockImplementationOnce(() => Promise.reject(new Error("no")));
    await feed.more();
    expect(feed.get()).toMatchObject({ more: true, loadingMore: false });
    expect(feed.get().error).toBeDefined();
    read.mockClear();
    await feed.again();
    expect(read.mock.calls.map((c) => c[0].cursor)).toEqual(["19"]);
    expect(feed.get().rows).toHaveLength(30);
    expect(feed.get().error).toBeUndefined();
  });
  it("shows progress at once, and reads what ended again for its result", async () => {
    const tasks = new Map([[0, task(0)], [1, task(1)]]);
    const { feed, read } = await make(tasks);
    tasks.set(1, task(1, { state: "succeeded", result: { loss: 1 } }));
    read.mockClear();
    feed.note({ events: [event({ type: "task", task: "1.0", state: "running", detail: { progress: 0.5, metrics: { loss: 3 } } }), event({ type: "task", task: "1.1", state: "succeeded" }), event({ type: "task", task: "2.0", state: "failed" })], resync: false });
    await feed.tick(0);
    expect(read.mock.calls.map((c) => c[0].tasks)).toEqual(["1"]);
    expect(feed.get().rows[0]).toMatchObject({ progress: 0.5, metrics: { loss: 3 } });
    expect(feed.get().rows[1]).toMatchObject({ state: "succeeded", result: { loss: 1 } });
    await feed.tick(9_000);
    expect(read).toHaveBeenCalledTimes(1);
  });
  it("loads a filtered list again when a task comes to match", async () => {
    const tasks = new Map([[0, task(0)]]);
    const { feed, read } = await make(tasks, { states: ["running"] });
    tasks.set(7, task(7));
    read.mockClear();
    feed.note({ events: [event({ type: "task", task: "1.7", state: "running" })], resync: false });
    await feed.tick(0);
    expect(feed.get().rows.map((t) => t.index)).toEqual([0, 7]);
    expect(read).toHaveBeenCalledTimes(1);
  });
  it("writes numbers as spans", () => {
    expect(spansOf([5, 1, 2, 3, 9])).toBe("1-3,5,9");
    expect(numbersOf("1-3,5,9", 100)).toEqual([1, 2, 3, 5, 9]);
    expect(numbersOf("0-999999999999", 3)).toEqual([0, 1, 2]);
    // All of a sweep, and all that a URL has room for, come back from it.
    expect(validateJob({ runs: spansOf(Array.from({ length: 5_000 }, (_, i) => i)) }).runs).toBe("0-4999");
    const odd = spansOf(Array.from({ length: 100_000 }, (_, i) => i * 2));
    expect(validateJob({ runs: odd }).runs).toBe(odd);
    expect(validateJob({ runs: 7 }).runs).toBe("7");
    expect(spansOf(Array.from({ length: 100_000 }, (_, i) => i * 2)).length).toBeLessThanOrEqual(6_000);
  });
});
