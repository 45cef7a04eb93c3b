import { describe, expect, it } from "vitest";
import type { Attention } from "@/api/types";
import { byKind, things, workersOf } from "./Attention";

const item = (severity: Attention["severity"], kind: Attention["kind"], worker: string): Attention => ({ severity, kind, worker, message: "", action: "open_worker" });

describe("byKind", () => {
  it("puts items of one kind together and keeps the order of the first of each", () => {
    const groups = byKind([item("critical", "worker_unreachable", "a"), item("warning", "gpu_quarantined", "b"), item("critical", "worker_unreachable", "c"), item("warning", "worker_unreachable", "d")]);
    expect(groups.map((g) => g.map((a) => a.worker))).toEqual([["a", "c"], ["b"], ["d"]]);
  });
});

describe("a row that stands for others", () => {
  it("counts for as many as it stands for", () => {
    expect(things([item("warning", "worker_lost", "a"), { severity: "warning", kind: "worker_lost", message: "", action: "list_workers", more: 41 }])).toBe(42);
  });
  it("leads to the workers of its kind", () => {
    expect(workersOf("worker_lost")).toEqual({ state: "gone" });
    expect(workersOf("gpu_quarantined")).toEqual({ attention: true });
  });
});
