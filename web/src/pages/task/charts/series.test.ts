import { describe, expect, it } from "vitest";
import { curvesOf, groupOf, partOf, resourcesOf, smooth } from "./series";

const at = (s: number) => new Date(s * 1000).toISOString();
const points = (from: number, ...losses: number[]) => losses.map((loss, i) => ({ at: at(from + i), metrics: { loss } }));

describe("curvesOf", () => {
  it("joins attempts with a gap between them", () => {
    const c = curvesOf([
      { attempt: 1, points: points(100, 3, 2) },
      { attempt: 2, points: points(200, 1) },
    ]).get("loss");
    expect(c?.values).toEqual([3, 2, null, 1]);
    expect(c?.times).toEqual([100, 101, 150.5, 200]);
    expect(c && [0, 1].map((i) => partOf(c, c.values, i))).toEqual([[3, 2, null, null], [null, null, null, 1]]);
  });

  it("has ascending times and finite values whatever comes, and sorts names", () => {
    const a: Parameters<typeof curvesOf>[0][number] = { attempt: 1, points: [{ at: at(5), metrics: { b: 1, a: Number.NaN } }, { at: at(3), metrics: { b: 2 } }, { at: at(9), progress: 1 }] };
    const curves = curvesOf([a]);
    expect([...curves.keys()]).toEqual(["a", "b"]);
    expect(curves.get("a")?.values).toEqual([null]);
    expect(curves.get("b")?.times).toEqual([5, 5]);
  });
});

describe("smooth", () => {
  const times = [0, 1, 2, 3, 4];

  it("leaves the curve as it is without weight, and constants with any", () => {
    const values = [1, 5, 2, 4, 3];
    expect(smooth({ times, values }, 0)).toBe(values);
    for (const v of smooth({ times, values: [2, 2, 2, 2, 2] }, 0.95)) expect(v).toBeCloseTo(2);
  });

  it("begins at the first value and stays within the range", () => {
    const s = smooth({ times, values: [10, 0, 10, 0, 10] }, 0.6) as number[];
    expect(s[0]).toBeCloseTo(10);
    for (const v of s) expect(v).toBeGreaterThan(0);
    expect(Math.max(...s.slice(1)) - Math.min(...s.slice(1))).toBeLessThan(5);
  });

  it("begins again after a gap", () => {
    const s = smooth({ times, values: [10, 10, null, 2, 2] }, 0.9);
    expect(s[2]).toBeNull();
    expect(s[3]).toBeCloseTo(2);
  });

  it("does not depend on how often values come", () => {
    const dense = Array.from({ length: 101 }, (_, i) => i / 10);
    const a = smooth({ times: dense, values: dense.map((t) => (t < 5 ? 0 : 1)) }, 0.9);
    const twice = dense.flatMap((t) => [t, t]);
    const b = smooth({ times: twice, values: twice.map((t) => (t < 5 ? 0 : 1)) }, 0.9);
    expect(Math.abs((a.at(-1) ?? 0) - (b.at(-1) ?? 0))).toBeLessThan(0.05);
  });
});

describe("resourcesOf", () => {
  it("has a chart for all that was measured, with a line for each device", () => {
    const gpu = (uuid: string, utilization: number) => ({ uuid, utilization, memory: 100, power: 50 });
    const charts = resourcesOf(
      [
        { samples: [{ at: at(1), cpu: 0.5, memory: 100 }] },
        { samples: [{ at: at(10), cpu: 1, gpus: [gpu("a", 0.5), gpu("b", 1)] }] },
      ],
      (u) => `GPU ${u}`,
    );
    const by = Object.fromEntries(charts.map((c) => [c.title, c]));
    expect(Object.keys(by).sort()).toEqual(["CPU", "GPU memory of the device", "GPU power", "GPU utilization", "Memory"]);
    expect(by["CPU"]?.series[0]?.values).toEqual([0.5, null, 1]);
    expect(by["GPU utilization"]?.series).toEqual([{ label: "GPU a", values: [null, null, 0.5] }, { label: "GPU b", values: [null, null, 1] }]);
  });
});

describe("groupOf", () => {
  it("is what comes before the first separator", () => {
    expect(["train/loss", "val.acc", "loss", "/x"].map(groupOf)).toEqual(["train", "val", "", ""]);
  });
});
