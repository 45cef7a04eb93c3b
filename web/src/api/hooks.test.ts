import { describe, expect, it } from "vitest";
import { known } from "./hooks";

const hour = (values: (number | null)[]) => {
  const seconds = values.map((_, i) => 10_000 + i * 60);
  return { step: 60, times: seconds.map((t) => new Date(t * 1000).toISOString()), seconds, span: { from: 10_000, to: 13_600 }, series: { cpu: values, none: null } };
};

describe("known", () => {
  it("begins a step before the first value", () => {
    const h = known(hour(Array.from({ length: 60 }, (_, i) => (i < 20 ? null : i))));
    expect(h.span).toEqual({ from: 10_000 + 19 * 60, to: 13_600 });
    expect(h.seconds[0]).toBe(h.span.from);
    expect(h.times).toHaveLength(41);
    expect(h.series.cpu?.slice(0, 2)).toEqual([null, 20]);
    expect(h.series.none).toBeNull();
  });
  it("keeps ten minutes", () => {
    const h = known(hour(Array.from({ length: 60 }, (_, i) => (i < 59 ? null : 1))));
    expect(h.span.from).toBe(13_000);
    expect(h.seconds).toHaveLength(10);
  });
  it("leaves a full span and one without values as they are", () => {
    for (const h of [hour(Array.from({ length: 60 }, () => 1)), hour(Array.from({ length: 60 }, () => null)), hour([])]) expect(known(h)).toBe(h);
  });
});
