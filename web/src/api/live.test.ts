import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Coalescer, hiddenFor, LiveStream, maxPending, type LiveEvent } from "./live";

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

  it("stays bounded: too many subjects become a resync", () => {
    const c = new Coalescer();
    for (let i = 0; i <= maxPending; i++) c.add(task(i, `1.${i}`));
    const batch = c.take();
    expect(batch.resync).toBe(true);
    expect(batch.events.length).toBe(0);
  });
});

describe("LiveStream", () => {
  const stream = new LiveStream();
  const connections: AbortSignal[] = [];
  beforeEach(() => {
    vi.useFakeTimers();
    connections.length = 0;
    vi.stubGlobal("fetch", (request: Request) => {
      connections.push(request.signal);
      return Promise.resolve(new Response(new ReadableStream({ start: (c) => request.signal.addEventListener("abort", () => c.error(request.signal.reason)) })));
    });
  });
  afterEach(() => {
    stream.stop();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });
  const hidden = async (value: boolean) => {
    vi.spyOn(document, "hidden", "get").mockReturnValue(value);
    document.dispatchEvent(new Event("visibilitychange"));
    await vi.advanceTimersByTimeAsync(0);
  };

  it("does not connect in a tab that is opened in the background until it is shown", async () => {
    await hidden(true);
    stream.start();
    await vi.advanceTimersByTimeAsync(10 * 60_000);
    expect(connections).toHaveLength(0);
    expect(stream.getConnection().status).toBe("paused");
    await hidden(false);
    expect(connections).toHaveLength(1);
    expect(stream.getConnection().status).toBe("open");
  });

  it("gives the connection of a hidden tab back, and takes one when it is shown", async () => {
    await hidden(false);
    stream.start();
    await vi.advanceTimersByTimeAsync(0);
    await hidden(true);
    await vi.advanceTimersByTimeAsync(hiddenFor - 1);
    expect(connections[0]?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(connections).toHaveLength(1);
    expect(connections[0]?.aborted).toBe(true);
    await hidden(false);
    expect(connections).toHaveLength(2);
    expect(stream.getConnection().status).toBe("open");
  });

  it("stays connected in a tab that is hidden for a moment", async () => {
    await hidden(false);
    stream.start();
    await vi.advanceTimersByTimeAsync(0);
    await hidden(true);
    await vi.advanceTimersByTimeAsync(hiddenFor / 2);
    await hidden(false);
    await vi.advanceTimersByTimeAsync(hiddenFor);
    expect(connections.map((c) => c.aborted)).toEqual([false]);
  });

  it("resumes after the id of a keep-alive", async () => {
    const last: (string | null)[] = [];
    vi.stubGlobal("fetch", (request: Request) => {
      last.push(request.headers.get("Last-Event-ID"));
      const text = last.length === 1 ? ": muster\n\n: muster\nid: e-7\n\n" : ": muster\n\n";
      return Promise.resolve(new Response(text, { headers: { "Content-Type": "text/event-stream" } }));
    });
    await hidden(false);
    stream.start();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(last.slice(0, 2)).toEqual([null, "e-7"]);
  });
});
