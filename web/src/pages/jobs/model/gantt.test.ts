import { describe, expect, it } from "vitest";
import type { Attempt, Task } from "@/api/types";
import { barsOf, busy, extent, firstFrom, hasEarlier, lanes, pan, progressOf, ticks, zoom, type Bar } from "./gantt";

const at = (s: number) => new Date(s * 1000).toISOString();
const bar = (index: number, worker: string, start: number, end?: number): Bar => ({ task: `1.${index}`, index, attempt: 1, name: "t", worker, state: "succeeded", start, end, retry: false });

describe("barsOf", () => {
  const task: Task = { id: "1.0", job: 1, index: 0, group: 0, name: "t", kind: "process", state: "failed", attempt: 2, worker: "w-b", created_at: at(0), queued_at: at(5), assigned_at: at(6), started_at: at(7), finished_at: at(9) };
  const attempts: Attempt[] = [{ id: "1.0#1", worker: "w-a", outcome: "lost", assigned_at: at(1), started_at: at(2), finished_at: at(4) }, { id: "1.0#2", worker: "w-b", assigned_at: at(6), started_at: at(7) }];
  it("has a bar for each attempt, with its wait", () => {
    expect(barsOf(task, attempts).map((b) => [b.attempt, b.worker, b.state, b.queued, b.start, b.end, b.retry])).toEqual([
      [1, "w-a", "lost", 0, 2000, 4000, false],
      [2, "w-b", "failed", 5000, 7000, 9000, true],
    ]);
  });
  it("has none for a task that never ran", () => {
    expect(barsOf({ ...task, assigned_at: undefined, started_at: undefined })).toEqual([]);
  });
  it("does not call an attempt lost whose outcome it does not know", () => {
    const [first = expect.fail("no bar")] = barsOf(task, [{ id: "1.0#1", worker: "w-a", assigned_at: at(1), started_at: at(2) }]);
    expect([first.state, first.start, first.end]).toEqual(["unknown", 2000, 6000]);
  });
  it("has the last attempt of a task that waits for its next one", () => {
    const waits: Task = { ...task, state: "queued", attempt: 1, finished_at: undefined };
    expect([hasEarlier(waits), hasEarlier({ ...waits, state: "running" }), hasEarlier({ ...waits, attempt: undefined })]).toEqual([true, false, false]);
    expect(barsOf(waits, attempts.slice(0, 1)).map((b) => [b.attempt, b.state, b.end])).toEqual([[1, "lost", 4000]]);
  });
  it("reads attempts again when one ends and when the next one begins", () => {
    const states: Task[] = [{ ...task, attempt: 1, state: "running" }, { ...task, attempt: 1, state: "queued" }, { ...task, state: "assigned" }, { ...task, state: "running" }];
    expect(new Set(states.map(progressOf)).size).toBe(3);
  });
});

describe("lanes", () => {
  const bars = [bar(0, "a", 0, 10), bar(1, "a", 5, 15), bar(2, "a", 10, 20), bar(3, "b", 0)];
  it("never overlap, and are as many as ran at once", () => {
    const all = lanes(bars, "worker", 30, (w) => w);
    expect(all.map((l) => [l.label, l.more, l.bars.map((b) => b.index)])).toEqual([["a", false, [0, 2]], ["a", true, [1]], ["b", false, [3]]]);
    expect(busy(all, { from: 0, to: 30 }, 30)).toBeCloseTo(60 / 90);
  });
  it("are one for each task if asked for", () => {
    expect(lanes(bars, "task", 30, (w) => w).map((l) => l.label)).toEqual(["1.0", "1.1", "1.2", "1.3"]);
  });
  it("find the first bar in view by halves", () => {
    const many = Array.from({ length: 1_000 }, (_, i) => bar(i, "a", i * 10, i * 10 + 5));
    expect(firstFrom(many, 5_003, 1e9)).toBe(500);
    expect(firstFrom(many, 5_006, 1e9)).toBe(501);
    expect(firstFrom(many, 1e6, 1e9)).toBe(1_000);
  });
});

describe("span", () => {
  const all = { from: 0, to: 1_000 };
  it("zooms around a place and stays within", () => {
    expect(zoom(all, all, 2, 0.5)).toEqual({ from: 250, to: 750 });
    expect(zoom({ from: 250, to: 750 }, all, 0.1, 0.5)).toEqual(all);
    expect(pan({ from: 250, to: 750 }, all, 9_999)).toEqual({ from: 500, to: 1_000 });
  });
  it("covers waits, and what runs until now", () => {
    expect(extent([{ ...bar(0, "a", 50, 60), queued: 20 }, bar(1, "a", 70)], 90)).toEqual({ from: 20, to: 90 });
    expect(extent([], 5_000)).toEqual({ from: 4_000, to: 5_000 });
  });
  it("has round times as ticks", () => {
    expect(ticks({ from: 10_000, to: 70_000 }, 10_000, 4)).toEqual([0, 15_000, 30_000, 45_000, 60_000]);
    expect(ticks({ from: 0, to: 1e13 }, 0, 5).length).toBeLessThanOrEqual(200);
  });
});
