import { describe, expect, it } from "vitest";
import { toYAML } from "@/ui/yaml";
import { moment, validateJob, validateJobs } from "../search";
import { parseJobs, resultRows, specRows } from "./compare";
import { blocks, tokens } from "./spec";
import { canonical, maxViews, read, save } from "./views";

describe("search", () => {
  it("drops what it does not know", () => {
    expect(validateJobs({ state: ["failed", "nonsense"], label: ["a=b", "c"], since: "24h", until: "never", sort: "-cost", order: "up", project: 7, x: 1 })).toEqual({ state: ["failed"], label: ["a=b"], since: "24h", sort: "-cost", project: "7" });
    expect(validateJob({ tab: "graph", at: "12", with: 15, runs: "1,2", over: "step", state: "failed", view: "pie" })).toEqual({ tab: "graph", at: 12, with: "15", runs: "1,2", over: "step", state: ["failed"] });
    expect(validateJob({ view: "list", axes: ["param:lr", "result:loss"], span: "1700000000000-1700000005000", ranges: { "result:loss": [0.1, null], a: [1], b: [null, null], c: [{}, 1] } })).toEqual({ view: "list", axes: ["param:lr", "result:loss"], span: "1700000000000-1700000005000", ranges: { "result:loss": [0.1, null] } });
    expect(validateJob({ span: "1-x", ranges: [1, 2] })).toEqual({});
    expect(validateJob({ tab: "<script>", at: -1, with: "1;2" })).toEqual({});
  });
  it("reads times before now and dates", () => {
    expect(moment("2h", Date.UTC(2026, 0, 2, 3))).toBe("2026-01-02T01:00:00.000Z");
    expect(moment("2026-01-02T03:04:05Z", 0)).toBe("2026-01-02T03:04:05.000Z");
  });
});

describe("views", () => {
  it("are the same whatever the order of their filters", () => {
    expect(canonical({ state: ["failed", "running"], project: "a" })).toBe(canonical({ project: "a", state: ["running", "failed"], name: "" }));
    expect(canonical({ project: "a" })).not.toBe(canonical({ project: "b" }));
  });
  it("replace those of the same name, and are bounded", () => {
    expect(save([{ name: "x", search: {} }], " x ", { project: "p" })).toEqual([{ name: "x", search: { project: "p" } }]);
    let views = save([], "", {});
    expect(views).toEqual([]);
    for (let i = 0; i < 50; i++) views = save(views, `v${i}`, {});
    expect(views).toHaveLength(maxViews);
    expect(views[views.length - 1]?.name).toBe("v49");
  });
  it("survive anything in local storage", () => {
    expect(read("nonsense", validateJobs)).toEqual([]);
    expect(read([null, 1, { name: "a" }, { name: "b", search: { state: ["failed", 3] } }], validateJobs)).toEqual([{ name: "b", search: { state: ["failed"] } }]);
  });
});

describe("spec as YAML", () => {
  const spec = { tasks: [{ run: "echo a\necho ${index}\n", name: "t", env: { Z: "1", A: "2" }, needs: null }], labels: {}, name: "j" };
  it("has the usual order of fields, and nothing empty", () => {
    expect(toYAML(spec)).toBe('name: j\ntasks:\n  - name: t\n    run: |\n      echo a\n      echo ${index}\n    env:\n      Z: "1"\n      A: "2"\n');
  });
  it("is coloured without changing its text", () => {
    const lines = toYAML(spec).split("\n");
    const inBlock = blocks(lines);
    expect(inBlock).toEqual([false, false, false, false, true, true, false, false, false, false]);
    lines.forEach((l, i) => expect(tokens(l, inBlock[i] ?? false).map((t) => t.text).join("")).toBe(l));
    expect(tokens("  - name: ${a} b", false).map((t) => t.kind)).toEqual(["plain", "mark", "key", "mark", "plain", "reference", "text"]);
    expect(tokens("n: -1.5e3", false).pop()?.kind).toBe("number");
  });
});

describe("comparison of jobs", () => {
  it("names what differs in specs, by the names of stages", () => {
    const a = { name: "j", tasks: [{ name: "x", run: "1" }, { name: "y", run: "2" }] };
    const b = { name: "j", tasks: [{ name: "y", run: "3" }, { name: "x", run: "1" }] };
    expect(specRows([a, b])).toEqual({ rows: [{ name: "y.run", values: ["2", "3"], differs: true }], same: 2 });
  });
  it("sums up results of arrays by their best and mean", () => {
    const of = (...loss: number[]) => ({ tasks: loss.map((l, i) => ({ id: `1.${i}`, job: 1, index: i, group: 0, name: "t", kind: "noop", state: "succeeded" as const, result: { loss: l } })) });
    expect(resultRows([of(3, 1), of(2, 2)])).toEqual([
      { name: "t · loss, best", values: [1, 2], differs: true },
      { name: "t · loss, mean", values: [2, 2], differs: false },
    ]);
  });
  it("reads job numbers", () => {
    expect(parseJobs("12, 15;15 job 17", 17)).toEqual([12, 15]);
  });
});
