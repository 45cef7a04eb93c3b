/// <reference types="node" />
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { filterText, groupVerdicts } from "./verdicts";
import { validateTask } from "./search";

it("groups workers by the filter that they fail, nearest first", () => {
  const v = (name: string, filter?: string) => ({ worker: `w-${name}`, name, fits: filter === undefined, ...(filter && { filter }) });
  expect(groupVerdicts([v("a", "memory"), v("b"), v("c", "memory"), v("d", "gpus")]).map((g) => [g.filter, g.fits, g.workers.map((w) => w.name)])).toEqual([
    ["memory", false, ["a", "c"]],
    ["", true, ["b"]],
    ["gpus", false, ["d"]],
  ]);
});

it("drops what the address cannot mean", () => {
  expect(validateTask({ tab: "log", attempt: 2, at: 100, q: 404, regex: true, stream: "stderr", metric: 5, file: "a/b.csv" })).toEqual({ tab: "log", attempt: 2, at: 100, q: "404", regex: true, stream: "stderr", metric: "5", file: "a/b.csv" });
  expect(validateTask({ tab: "x", attempt: 0, at: -1, q: {}, regex: "yes", stream: "both", file: null })).toEqual({});
});

it("has words for every filter of the scheduler", () => {
  const names = /filterNames = \[\.\.\.\]string\{([^}]*)\}/.exec(readFileSync("../internal/placement/filter.go", "utf8"))?.[1] ?? "";
  const filters = [...names.matchAll(/:\s*"([^"]*)"/g)].map((m) => m[1] ?? "");
  expect(filters.length).toBeGreaterThan(15);
  expect([...filters, "kept", "rejected", "failed"].filter((f) => filterText(f) === f)).toEqual([]);
});
