import { describe, expect, it } from "vitest";
import { dateTime, timeOfDay } from "./format";
import { alone, cursorTime } from "./TimeChartCanvas";

describe("alone", () => {
  it("finds values without a neighbour to draw a line to", () => {
    expect(alone([7])).toEqual([0]);
    expect(alone([null, 7, null, 1, 2, null, 3])).toEqual([1, 6]);
    expect(alone([1, 2, 3])).toEqual([]);
    expect(alone([null, null])).toEqual([]);
  });
  it("does not take the times of other series for gaps", () => {
    expect(alone([1, undefined, 2])).toEqual([]);
    expect(alone([undefined, 1, undefined, null])).toEqual([1]);
  });
});

describe("cursorTime", () => {
  it("has the day where the time of day is not enough", () => {
    const at = Date.parse("2026-02-03T12:00:00Z") / 1000;
    expect(cursorTime(at, [at - 3600, at])).toBe(timeOfDay(at * 1000));
    expect(cursorTime(at, [at - 7 * 86_400, at])).toBe(dateTime(at * 1000));
  });
});
