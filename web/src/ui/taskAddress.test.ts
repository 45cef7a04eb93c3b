import { describe, expect, it } from "vitest";
import type { Job } from "@/api/types";
import { parseTask, taskAddress } from "./taskAddress";

function job(tasks: readonly Record<string, unknown>[], sizes: readonly number[]): Job {
  let first = 0;
  const groups = sizes.map((size, index) => {
    const g = { job: 17, index, name: (tasks[index]?.name as string | undefined) ?? "task", first, size, counts: {} };
    first += size;
    return g;
  });
  return { id: 17, name: "j", project: "p", priority: 50, state: "running", counts: {}, groups, spec: { tasks } } as unknown as Job;
}

const task = (index: number, group: number, element?: string) => ({ id: `17.${index}`, index, group, element });

describe("taskAddress", () => {
  it("has the numbers of the only array", () => {
    const j = job([{ name: "a" }, { name: "b", array: "1-100" }], [1, 100]);
    expect(taskAddress(j, task(57, 1, "57"))).toBe("17_57");
    expect(taskAddress(j, task(0, 0))).toBe("17.0");
  });
  it("counts the combinations of a matrix", () => {
    expect(taskAddress(job([{ name: "b" }, { name: "a", matrix: { x: [1, 2] } }], [1, 2]), task(2, 1, "x=2"))).toBe("17_1");
  });
  it("names the stage if there are several", () => {
    const j = job([{ name: "a", array: "3-4" }, { name: "b", gang: 2 }], [2, 2]);
    expect(taskAddress(j, task(1, 0, "4"))).toBe("17.a.4");
    expect(taskAddress(j, task(3, 1, "1"))).toBe("17.b.1");
  });
  it("is the id without a job or its spec", () => {
    expect(taskAddress(undefined, task(3, 0, "4"))).toBe("17.3");
    expect(taskAddress({ ...job([{ array: "3-4" }], [2]), spec: undefined }, task(1, 0, "4"))).toBe("17.1");
  });
});

describe("parseTask", () => {
  const j = job([{ name: "a" }, { name: "b", array: "1-9, 20,30-39:3" }], [1, 14]);
  it("finds elements", () => {
    expect(parseTask(j, "17_1")).toBe("17.1");
    expect(parseTask(j, " 9 ")).toBe("17.9");
    expect(parseTask(j, "20")).toBe("17.10");
    expect(parseTask(j, "39")).toBe("17.14");
  });
  it("finds tasks by number", () => {
    expect(parseTask(j, "17.3")).toBe("17.3");
    expect(parseTask(job([{ name: "a" }], [1]), "0")).toBe("17.0");
  });
  it("refuses others", () => {
    for (const text of ["31", "17_0", "18.3", "18_3", "x", "", "1.2.3", "17_99999999999"]) expect(parseTask(j, text)).toBeUndefined();
    expect(parseTask(job([{ name: "a" }], [1]), "17_0")).toBeUndefined();
  });
});
