import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LiveEvent } from "./live";
import { ApiError } from "./error";
import { Refresher, topicsOf } from "./refresh";

const event = (e: Partial<LiveEvent>): LiveEvent => ({ epoch: "e", seq: 1, type: "task", at: "", ...e });

describe("topicsOf", () => {
  it("names the task, its job and its worker", () => {
    expect(topicsOf(event({ task: "17.3", worker: "w-a" }))).toEqual(["tasks", "job:17", "task:17.3", "worker:w-a"]);
    expect(topicsOf(event({ type: "job", job: 17 }))).toEqual(["jobs", "job:17"]);
    expect(topicsOf(event({ type: "worker", worker: "w-a" }))).toEqual(["workers", "worker:w-a"]);
  });
});

describe("Refresher", () => {
  let client: QueryClient;
  const leave: (() => void)[] = [];
  beforeEach(() => {
    vi.useFakeTimers();
    client = new QueryClient();
  });
  afterEach(() => {
    for (const l of leave.splice(0)) l();
    client.clear();
    vi.useRealTimers();
  });

  async function show(live: string[], every?: number) {
    const fetches = vi.fn(() => Promise.resolve(1));
    leave.push(new QueryObserver(client, { queryKey: live, queryFn: fetches, meta: { live, ...(every && { every }) } }).subscribe(() => undefined));
    await vi.advanceTimersByTimeAsync(0);
    expect(fetches).toHaveBeenCalledTimes(1);
    return fetches;
  }

  it("fetches what an event touches, once a second at most, and nothing else", async () => {
    const job = await show(["job:17"]);
    const other = await show(["job:18"]);
    const refresher = new Refresher(client);
    for (let i = 0; i < 100; i++) {
      refresher.note({ events: [event({ task: `17.${i}` })], resync: false });
      await vi.advanceTimersByTimeAsync(25);
      refresher.tick(Date.now());
    }
    await vi.advanceTimersByTimeAsync(0);
    // 2.5 s of events: the first fetch, then one in each second.
    expect(job.mock.calls.length).toBeGreaterThanOrEqual(3);
    expect(job.mock.calls.length).toBeLessThanOrEqual(4);
    expect(other).toHaveBeenCalledTimes(1);
  });

  it("leaves alone what no event touches, however many tasks change", async () => {
    const workers = await show(["workers"]);
    const refresher = new Refresher(client);
    for (let second = 0; second < 3; second++) {
      refresher.note({ events: Array.from({ length: 10_000 }, (_, i) => event({ task: `17.${i}`, worker: `w-${i}` })), resync: false });
      await vi.advanceTimersByTimeAsync(1100);
      refresher.tick(Date.now());
    }
    await vi.advanceTimersByTimeAsync(0);
    expect(workers).toHaveBeenCalledTimes(1);
  });

  it("fetches everything that is live after a resync", async () => {
    const jobs = await show(["jobs"]);
    const workers = await show(["workers"]);
    const refresher = new Refresher(client);
    refresher.note({ events: [], resync: true });
    await vi.advanceTimersByTimeAsync(1100);
    refresher.tick(Date.now());
    await vi.advanceTimersByTimeAsync(0);
    expect(jobs).toHaveBeenCalledTimes(2);
    expect(workers).toHaveBeenCalledTimes(2);
  });

  it("asks again after a resync for what failed while the server was away, though no event touches it", async () => {
    const lost = vi.fn(() => Promise.reject(new ApiError("unreachable", 0, "away")));
    const refused = vi.fn(() => Promise.reject(new ApiError("forbidden", 403, "no")));
    for (const [key, queryFn] of [["lost", lost], ["refused", refused]] as const) {
      leave.push(new QueryObserver(client, { queryKey: [key], queryFn, retry: false }).subscribe(() => undefined));
    }
    await vi.advanceTimersByTimeAsync(1100);
    const refresher = new Refresher(client);
    refresher.note({ events: [], resync: true });
    refresher.tick(Date.now());
    await vi.advanceTimersByTimeAsync(0);
    expect(lost).toHaveBeenCalledTimes(2);
    expect(refused).toHaveBeenCalledTimes(1);
  });

  it("marks what is not shown as stale", async () => {
    await client.query({ queryKey: ["x"], queryFn: () => 1, staleTime: Infinity, meta: { live: ["jobs"] } });
    const refresher = new Refresher(client);
    refresher.note({ events: [event({ type: "job", job: 1 })], resync: false });
    refresher.tick(Date.now());
    expect(client.getQueryState(["x"])?.isInvalidated).toBe(true);
  });
});
