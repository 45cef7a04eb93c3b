import { describe, expect, it } from "vitest";
import { dateTime, timeOfDay } from "./format";
import { alone, axisTime, cursorTime } from "./TimeChartCanvas";

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

describe("axisTime", () => {
  const at = Date.UTC(2026, 0, 2, 15, 4, 5) / 1000;
  const texts = (step: number, n = 3) => {
    const ticks = Array.from({ length: n }, (_, i) => at + i * step);
    return ticks.map(axisTime(ticks));
  };
  it("writes each tick of a chart differently", () => {
    for (const step of [0.01, 0.1, 0.2, 1, 30, 60, 300, 3600, 86_400]) expect(new Set(texts(step)).size, `${step} s`).toBe(3);
  });
  it("writes minutes without seconds, and seconds with tenths", () => {
    expect(texts(300)[0]).toMatch(/^\d\d:\d\d$/);
    expect(texts(0.2).map((t) => t.slice(-4))).toEqual(["05.0", "05.2", "05.4"]);
    expect(texts(1, 1)[0]).toMatch(/^\d\d:\d\d:\d\d$/);
  });
});
