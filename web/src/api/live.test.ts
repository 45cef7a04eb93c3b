import { describe, expect, it, vi } from "vitest";
import { Coalescer, live, maxPending, type LiveEvent } from "./live";

const task = (seq: number, id: string, more: Partial<LiveEvent> = {}): LiveEvent => ({ epoch: "e", seq, type: "task", at: "2026-01-02T00:00:00Z", task: id, state: "running", ...more });

describe("Coalescer", () => {
  it("keeps the newest event of each subject, in order of arrival", () => {
    const c = new Coalescer();
    c.add(task(1, "1.0", { state: "queued" }));
    c.add(task(2, "1.1"));
    c.add(task(3, "1.0", { state: "running" }));
    c.add({ epoch: "e", seq: 4, type: "job", at: "", job: 1, state: "running" });
    c.add({ epoch: "e", seq: 5, type: "worker", at: "", worker: "w-1", state: "active" });
    const batch = c.take();
    expect(batch.events.map((e) => e.seq)).toEqual([2, 3, 4, 5]);
    expect(batch.resync).toBe(false);
    expect(c.empty).toBe(true);
  });

  it("keeps the progress that an event without one follows in the same state, and drops it with the state", () => {
    const c = new Coalescer();
    c.add(task(1, "1.0", { detail: { progress: 0.5 } }));
    c.add(task(2, "1.0"));
    expect(c.take().events[0]?.detail).toEqual({ progress: 0.5 });
    c.add(task(3, "1.0", { detail: { progress: 0.5 } }));
    c.add(task(4, "1.0", { state: "succeeded" }));
    expect(c.take().events[0]?.detail).toBeUndefined();
  });

  it("stays bounded: too many subjects become a resync", () => {
    const c = new Coalescer();
    for (let i = 0; i <= maxPending; i++) c.add(task(i, `1.${i}`));
    const batch = c.take();
    expect(batch.resync).toBe(true);
    expect(batch.events.length).toBe(0);
  });
});

describe("live", () => {
  it("resumes after the id of a keep-alive", async () => {
    const last: (string | null)[] = [];
    vi.stubGlobal("fetch", (request: Request) => {
      last.push(request.headers.get("Last-Event-ID"));
      const text = last.length === 1 ? ": muster\n\n: muster\nid: e-7\n\n" : ": muster\n\n";
      return Promise.resolve(new Response(text, { headers: { "Content-Type": "text/event-stream" } }));
    });
    live.start();
    await vi.waitFor(() => expect(last.length).toBeGreaterThan(1), 10_000);
    live.stop();
    vi.unstubAllGlobals();
    expect(last.slice(0, 2)).toEqual([null, "e-7"]);
  });
});
