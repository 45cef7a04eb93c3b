import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LogRecord, LogWindow } from "@/api/types";
import { LogStore, type ReadWindow } from "./store";

/** A log that grows, and answers windows as the server does. */
class FakeLog {
  records: LogRecord[] = [];
  size = 0;
  ended = false;
  reads: string[] = [];
  fail = false;

  write(lines: number, length = 100) {
    for (let i = 0; i < lines; i++) {
      const text = `${String(this.records.length).padStart(length - 1, " ")}\n`;
      this.records.push({ offset: this.size, stream: "stdout", at: "2026-01-01T00:00:00Z", text });
      this.size += text.length + 13;
    }
  }

  readonly read: ReadWindow = ({ offset, direction, bytes }) => {
    this.reads.push(`${direction} ${offset ?? "end"}`);
    if (this.fail) return Promise.reject(new Error("unreachable"));
    let from: number;
    let to: number;
    if (direction === "backward") {
      const end = offset ?? this.size;
      to = this.records.findIndex((r) => r.offset >= end);
      if (to < 0) to = this.records.length;
      from = to;
      for (let sum = 0; from > 0 && sum < bytes; from--) sum += this.records[from - 1]?.text?.length ?? 0;
    } else {
      from = this.records.findIndex((_, i) => (this.records[i + 1]?.offset ?? this.size) > (offset ?? 0));
      if (from < 0) from = this.records.length;
      to = from;
      for (let sum = 0; to < this.records.length && sum < bytes; to++) sum += this.records[to]?.text?.length ?? 0;
    }
    const at = (i: number) => this.records[i]?.offset ?? this.size;
    const w: LogWindow = { attempt: 1, size: this.size, first: at(from), last: at(to), done: this.ended && to >= this.records.length, records: this.records.slice(from, to) };
    return Promise.resolve(w);
  };
}

const settle = () => vi.advanceTimersByTimeAsync(0);
let log: FakeLog;
let store: LogStore;

beforeEach(() => {
  vi.useFakeTimers();
  log = new FakeLog();
  store = new LogStore(log.read, { chars: 1_000_000, lines: 5_000 });
});
afterEach(() => {
  store.stop();
  vi.useRealTimers();
});

describe("LogStore", () => {
  it("opens a log of any length at its end with one request", async () => {
    log.write(1_000_000 / 10);
    log.ended = true;
    store.start("end");
    await settle();
    expect(log.reads).toEqual(["backward end"]);
    expect(store.buffer.lines.at(-1)?.text.trim()).toBe("99999");
    expect(store.target).toBe("end");
    expect(store.buffer.done).toBe(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(log.reads.length).toBe(1);
  });

  it("jumps to a place in the middle with some lines before it, and loads on in both directions", async () => {
    log.write(50_000);
    store.start(log.size / 2);
    await settle();
    const middle = store.buffer.indexOf(log.size / 2);
    expect(middle).toBeGreaterThan(100);
    expect(store.buffer.lines.length - middle).toBeGreaterThan(100);
    const { first, last } = store.buffer;
    await store.loadBefore();
    expect(store.buffer.first).toBeLessThan(first);
    await store.loadAfter();
    expect(store.buffer.last).toBeGreaterThan(last);
    expect(store.buffer.lines.length).toBeLessThanOrEqual(5_000);
  });

  it("follows what is written, and keeps a bounded number of lines", async () => {
    log.write(10);
    store.start("end");
    await settle();
    for (let i = 0; i < 60; i++) {
      log.write(500);
      await vi.advanceTimersByTimeAsync(200);
    }
    await vi.advanceTimersByTimeAsync(2_000);
    expect(store.buffer.lines.at(-1)?.text.trim()).toBe(String(10 + 60 * 500 - 1));
    expect(store.buffer.lines.length).toBeLessThanOrEqual(5_000);
  });

  it("skips to the end when it is far behind", async () => {
    log.write(10);
    store.start("end");
    await settle();
    log.write(200_000);
    await vi.advanceTimersByTimeAsync(4_000);
    expect(store.buffer.lines.at(-1)?.text.trim()).toBe("200009");
    expect(log.reads.length).toBeLessThan(12);
  });

  it("counts new lines while the reader is elsewhere, and shows them on follow", async () => {
    log.write(100);
    store.start("end");
    await settle();
    store.leaveEnd();
    log.write(7);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(store.unseen).toEqual({ lines: 7, bytes: 0 });
    await store.follow();
    expect(store.unseen).toEqual({ lines: 0, bytes: 0 });
    expect(store.target).toBe("end");
  });

  it("says how much is new where it has not loaded it", async () => {
    log.write(20_000);
    store.start(0);
    await settle();
    const { size } = log;
    await vi.advanceTimersByTimeAsync(3_000);
    log.write(1_000);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(store.buffer.lines[0]?.text.trim()).toBe("0");
    expect(store.buffer.size).toBeGreaterThan(size);
    expect(store.unseen.lines).toBe(0);
  });

  it("recovers when the server comes back", async () => {
    log.write(10);
    store.start("end");
    await settle();
    log.fail = true;
    await vi.advanceTimersByTimeAsync(5_000);
    expect(store.error).toEqual(new Error("unreachable"));
    log.fail = false;
    log.write(5);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(store.error).toBeUndefined();
    expect(store.buffer.lines.length).toBe(15);
  });

  it("does nothing any more after stop", async () => {
    log.write(10);
    store.start("end");
    await settle();
    store.stop();
    const n = log.reads.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(log.reads.length).toBe(n);
  });
});
