import { describe, expect, it } from "vitest";
import { criticalPath, inOrder, layers, neighbour, stateOf, type Stage } from "./graph";

const stage = (name: string, needs: string[], startedAt?: number, finishedAt?: number): Stage => ({ name, index: 0, needs, kind: "", size: 1, counts: {}, startedAt, finishedAt });

describe("criticalPath", () => {
  const stages = [stage("fetch", [], 0, 2_000), stage("clean", ["fetch"], 2_000, 3_000), stage("tokenize", ["fetch"], 2_000, 5_000), stage("train", ["clean", "tokenize"], 5_000, 20_000), stage("lint", ["fetch"], 2_000, 4_000)];
  it("follows, from the end, the needed stage that ended last", () => {
    expect(criticalPath(stages, 99_000)).toEqual({ stages: ["fetch", "tokenize", "train"], seconds: 20 });
  });
  it("counts what runs until now, and leaves out what has not started", () => {
    const live = [stage("a", [], 0, 1_000), stage("b", ["a"], 1_000), stage("c", ["b"])];
    expect(criticalPath(live, 5_000)).toEqual({ stages: ["a", "b"], seconds: 5 });
  });
  it("is nothing for one stage, or before the start", () => {
    expect(criticalPath([stage("a", [], 0, 1)], 5).stages).toEqual([]);
    expect(criticalPath([stage("a", []), stage("b", ["a"])], 5).stages).toEqual([]);
  });
  it("ends in a circle, too", () => {
    expect(criticalPath([stage("a", ["b"], 0, 5), stage("b", ["a"], 0, 4)], 9).stages).toEqual(["b", "a"]);
  });
});

describe("order", () => {
  const stages = [stage("d", ["b", "c"]), stage("b", ["a"]), stage("c", ["a"]), stage("a", [])].map((s, index) => ({ ...s, index }));
  it("puts stages after what they need", () => {
    expect(inOrder(stages).map((s) => s.name)).toEqual(["a", "b", "c", "d"]);
    expect([...layers([stage("x", ["y"]), stage("y", ["x"])]).keys()]).toHaveLength(2);
  });
  it("moves along edges and within a layer", () => {
    expect(neighbour(stages, "a", "ArrowRight")).toBe("b");
    expect(neighbour(stages, "d", "ArrowLeft")).toBe("b");
    expect(neighbour(stages, "b", "ArrowDown")).toBe("c");
    expect(neighbour(stages, "b", "ArrowUp")).toBeUndefined();
  });
});

describe("stateOf", () => {
  it("follows the rule of jobs", () => {
    expect(stateOf({ waiting: 3 })).toBe("waiting");
    expect(stateOf({ queued: 1, waiting: 3 })).toBe("queued");
    expect(stateOf({ queued: 1, succeeded: 3 })).toBe("running");
    expect(stateOf({ failed: 1, timed_out: 1, succeeded: 3 })).toBe("failed");
    expect(stateOf({ cancelled: 1, succeeded: 3 })).toBe("cancelled");
    expect(stateOf({ skipped: 2 })).toBe("skipped");
    expect(stateOf({ skipped: 2, succeeded: 1 })).toBe("succeeded");
  });
});
