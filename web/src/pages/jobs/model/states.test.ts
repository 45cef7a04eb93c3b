import { describe, expect, it } from "vitest";
import { taskStates } from "@/api/types";
import { apply, Backlog, codeOf, decode, drift, nextWith, numberIn, Recent, tally, type StageStates, type StateEvent } from "./states";

const stage = (x: Partial<StageStates>): StageStates => ({ first: 10, size: 6, from: x.first ?? 10, ...x });

const event = (task: string, state: string, seq = 2): StateEvent => ({ epoch: "e", seq, task, state });

describe("decode", () => {
  it("reads runs in the order of the answer's own names", () => {
    const names = ["succeeded", "failed", "unheard of"];
    expect([...decode(stage({ runs: [[0, 2], [1, 3], [2, 1]] }), names)]).toEqual([5, 5, 6, 6, 6, 0]);
  });
  it("reads half bytes, the low one first, and ignores a last one that is over", () => {
    // 5, 6, 3, 5, 0 and one half byte of padding
    const packed = btoa(String.fromCharCode(5 | (6 << 4), 3 | (5 << 4), 0));
    expect([...decode(stage({ size: 5, packed }), taskStates)]).toEqual([5, 6, 3, 5, 0]);
  });
  it("puts a part where it belongs, and never writes over the end", () => {
    expect([...decode(stage({ from: 13, runs: [[6, 100]] }), taskStates)]).toEqual([0, 0, 0, 6, 6, 6]);
    expect([...decode(stage({ runs: [[6, -3], [5, 1]] }), taskStates)]).toEqual([5, 0, 0, 0, 0, 0]);
  });
  it("decodes a million elements that alternate", () => {
    const runs = Array.from({ length: 100_000 }, (_, i) => [i % 2, 10]);
    const states = decode(stage({ size: 1_000_000, runs }), taskStates);
    expect(tally(states).slice(0, 2)).toEqual([500_000, 500_000]);
  });
});

describe("events", () => {
  it("knows the number of a task of this job only", () => {
    expect(numberIn("17.3", 17)).toBe(3);
    expect(numberIn("17.3", 1)).toBeUndefined();
    expect(numberIn("17.x", 17)).toBeUndefined();
    expect(numberIn(undefined, 17)).toBeUndefined();
  });
  it("change states and counts together, and say what changed", () => {
    const states = decode(stage({ runs: [[3, 6]] }), taskStates);
    const counts = tally(states);
    const changed = apply({ states, counts, place: "e-1" }, 10, 17, [event("17.10", "succeeded"), event("17.12", "failed"), event("17.11", "running"), event("17.99", "failed"), event("18.11", "failed"), event("17.13", "nonsense")]);
    expect(changed).toEqual([0, 2]);
    expect([...states]).toEqual([5, 3, 6, 3, 3, 3]);
    expect(counts).toEqual(tally(states));
    expect(drift(counts, { running: 4, succeeded: 1, failed: 1 })).toBe(0);
    expect(drift(counts, { running: 2, succeeded: 3, failed: 1 })).toBe(2);
  });
  it("are changed by what came while they were on their way, and not by what they already have", () => {
    const backlog = new Backlog(3);
    // The request is sent; a task fails and is queued again, one succeeds, one starts: then the server makes its answer at 5.
    expect(backlog.note(17, [event("17.0", "failed", 3), event("17.1", "succeeded", 4), event("18.0", "failed", 4)])).toBe(true);
    expect(backlog.note(17, [event("17.0", "queued", 5)])).toBe(true);
    // While the answer is on its way, more happens.
    expect(backlog.note(17, [event("17.2", "failed", 6), event("17.1", "succeeded", 4)])).toBe(true);
    const states = decode(stage({ first: 0, size: 4, runs: [[1, 1], [5, 1], [3, 2]] }), taskStates);
    const elements = { states, counts: tally(states), place: "e-x-5" };
    expect(apply(elements, 0, 17, backlog.all().map((e) => ({ ...e, epoch: "e-x" })))).toEqual([2]);
    expect([...states]).toEqual([1, 5, 6, 3]);
    // An event that is older than the answer comes late.
    expect(apply(elements, 0, 17, [{ ...event("17.0", "failed", 3), epoch: "e-x" }])).toEqual([]);
    // The server was restarted: its numbers begin at 1.
    expect(apply(elements, 0, 17, [{ ...event("17.3", "failed", 1), epoch: "other" }])).toEqual([3]);
    expect(elements.counts).toEqual(tally(states));
    expect(backlog.note(17, [event("17.3", "failed", 7)])).toBe(false);
    expect(backlog.note(17, [event("17.2", "queued", 7)])).toBe(true);
    backlog.clear();
    expect(backlog.all()).toEqual([]);
  });
  it("count as recent for 5 to 10 seconds", () => {
    const recent = new Recent();
    recent.add(3, 100_000);
    recent.add(4, 104_000);
    expect(recent.count(104_900)).toBe(7);
    recent.add(1, 106_000);
    expect(recent.count(110_000)).toBe(8);
    expect(recent.count(111_000)).toBe(1);
    expect(recent.count(130_000)).toBe(0);
  });
});

describe("nextWith", () => {
  it("finds the next and the previous one, around the end", () => {
    const states = Uint8Array.from([6, 5, 5, 6, 5]);
    const bad = new Set([codeOf["failed"] ?? -1]);
    expect(nextWith(states, bad, -1, 1)).toBe(0);
    expect(nextWith(states, bad, 0, 1)).toBe(3);
    expect(nextWith(states, bad, 3, 1)).toBe(0);
    expect(nextWith(states, bad, 0, -1)).toBe(3);
    expect(nextWith(states, new Set([9]), 0, 1)).toBeUndefined();
  });
});
