import { describe, expect, it } from "vitest";
import { line } from "./Sparkline";

describe("Sparkline", () => {
  it("spans the width and scales to the largest value", () => {
    expect(line([0, 10], 100, 23).line).toBe("M0 21.5L100 1.5");
  });
  it("leaves a gap where values are unknown", () => {
    expect(line([1, null, 1], 100, 23).line).toBe("M0 1.5h0M100 1.5h0");
  });
  it("draws nothing for nothing", () => {
    expect(line([], 100, 23)).toEqual({ line: "", area: "" });
    expect(line([null, undefined], 100, 23).line).toBe("");
  });
  it("cuts values over the given top", () => {
    expect(line([5, 500], 100, 23, 10).line).toBe("M0 11.5L100 1.5");
  });
});
