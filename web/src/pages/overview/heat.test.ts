import { describe as suite, expect, it } from "vitest";
import type { OverviewGPU } from "@/api/types";
import { cellAt, describe, heat, layout, ordered, shaded, summarize } from "./heat";

const gpu = (more: Partial<OverviewGPU> = {}): OverviewGPU => ({ worker: "w-1", worker_name: "box", index: 0, uuid: "GPU-1", name: "H100", memory: 80 * 1024 ** 3, tasks: 0, ...more });

suite("heat map", () => {
  it.each([0, 1, 8, 500, 16_000, 20_000])("fits %d cells into its width", (n) => {
    const g = layout(n, 700, 260);
    expect(g.columns * g.pitch).toBeLessThanOrEqual(700);
    expect(g.columns * g.rows).toBeGreaterThanOrEqual(n);
    if (n <= 5_000) expect(g.rows * g.pitch).toBeLessThanOrEqual(260);
  });

  it("finds the cell under a point and none beside the cells", () => {
    const g = layout(10, 60, 400); // two columns
    expect(g.columns).toBe(2);
    expect(cellAt(g, 10, 31, 61)).toBe(5);
    expect(cellAt(g, 10, 61, 0)).toBe(-1);
    expect(cellAt(g, 10, 0, 151)).toBe(-1);
    expect(cellAt(g, 9, 31, 121)).toBe(-1);
  });

  it("measures shares and knows what is unknown", () => {
    expect(heat(gpu({ utilization: 0.5 }), "utilization", 0)).toBe(0.5);
    expect(heat(gpu(), "utilization", 0)).toBeUndefined();
    expect(heat(gpu({ memory_used: 20 * 1024 ** 3 }), "memory", 0)).toBe(0.25);
    expect(heat(gpu({ temperature: 60 }), "temperature", 0)).toBe(0.5);
    expect(heat(gpu({ temperature: 20 }), "temperature", 0)).toBe(0);
    expect(heat(gpu({ power: 350 }), "power", 700)).toBe(0.5);
    expect(heat(gpu({ power: 350 }), "power", 0)).toBeUndefined();
  });

  it("draws in shades: only nothing is cold, and all that is full is hot", () => {
    const { shades, unknown } = shaded([gpu({ utilization: 0 }), gpu({ utilization: 0.001 }), gpu({ utilization: 1 }), gpu(), gpu({ utilization: 0.5 })], "utilization", 0);
    expect([shades[0], shades[1], shades[16], shades.at(-1), unknown]).toEqual([[0], [1], [4], [2], [3]]);
  });

  it("keeps the devices of a worker together", () => {
    const all = [gpu({ worker: "b", worker_name: "box10" }), gpu({ worker: "a", worker_name: "box9", index: 1 }), gpu({ worker: "a", worker_name: "box9", index: 0 })];
    expect(ordered(all).map((g) => `${g.worker}${g.index}`)).toEqual(["a0", "a1", "b0"]);
  });

  it("says a device and all of them in words", () => {
    expect(describe(gpu({ utilization: 0.5, memory_used: 0, quarantined: "Xid 79" }))).toBe("box GPU 0, H100, 50% busy, 0 of 80 GiB in use, 0 tasks, quarantined: Xid 79");
    expect(summarize([gpu({ utilization: 1, tasks: 1 }), gpu({ quarantined: "x" })])).toBe("2 GPUs with 160 GiB in all, 1 with tasks, 100% busy on average, 1 quarantined");
    expect(summarize([])).toBe("No GPUs");
  });
});
