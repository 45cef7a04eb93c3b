import { describe, expect, it } from "vitest";
import type { LogRecord, LogWindow } from "@/api/types";
import { LogBuffer, type Stream } from "./buffer";

/** A log in memory that answers windows like the server does. */
function logOf(records: readonly [Stream, string][]) {
  let offset = 0;
  const all: LogRecord[] = records.map(([stream, text], i) => {
    const r = { offset, stream, at: new Date(i * 1000).toISOString(), text };
    offset += text.length + 16;
    return r;
  });
  const size = offset;
  const window = (from: number, to: number): LogWindow => {
    const part = all.slice(from, to);
    return { attempt: 1, size, first: all[from]?.offset ?? size, last: all[to]?.offset ?? size, done: to >= all.length, records: part };
  };
  return { all, size, window };
}

const numbered = (n: number) => logOf(Array.from({ length: n }, (_, i): [Stream, string] => ["stdout", `line ${i}\n`]));
const texts = (b: LogBuffer) => b.lines.map((l) => l.text);

describe("LogBuffer", () => {
  it("makes lines of parts of lines and of several lines in one record", () => {
    const log = logOf([["stdout", "a"], ["stdout", "b\nc\r\n"], ["stderr", "d"], ["stdout", "e\n\n"]]);
    const b = new LogBuffer();
    b.reset(log.window(0, 4));
    expect(b.lines.map((l) => [l.stream, l.text])).toEqual([["stdout", "ab"], ["stdout", "c"], ["stderr", "d"], ["stdout", "e"], ["stdout", ""]]);
    expect(b.done).toBe(true);
  });

  it("goes on with a line that was not ended", () => {
    const log = logOf([["stdout", "\r 10%"], ["stdout", "\r 20%"], ["stdout", "\r100%\n"], ["stdout", "done\n"]]);
    const b = new LogBuffer();
    b.reset(log.window(0, 1));
    expect(texts(b)).toEqual([" 10%"]);
    const first = b.lines[0];
    b.append(log.window(1, 2));
    expect(texts(b)).toEqual([" 20%"]);
    expect(b.lines[0]).not.toBe(first);
    b.append(log.window(2, 4));
    expect(texts(b)).toEqual(["100%", "done"]);
  });

  it("carries colours to the next line of the same stream", () => {
    const b = new LogBuffer();
    b.reset(logOf([["stdout", "\u001b[31mred\n"], ["stderr", "plain\n"], ["stdout", "still\u001b[0m\n"]]).window(0, 3));
    expect(b.lines.map((l) => l.spans?.[0]?.style?.fg)).toEqual(["1", undefined, "1"]);
  });

  it("drops lines at the far end and can load them again", () => {
    const log = numbered(100);
    const b = new LogBuffer({ chars: 1e6, lines: 30 });
    b.reset(log.window(0, 20));
    b.append(log.window(20, 40));
    expect(b.lines.length).toBe(30);
    expect(texts(b)[0]).toBe("line 10");
    expect(b.first).toBe(log.all[10]?.offset);
    b.prepend(log.window(0, 10));
    expect(texts(b)[0]).toBe("line 0");
    expect(b.lines.length).toBe(30);
    expect(b.last).toBe(log.all[30]?.offset);
    expect(b.atEnd).toBe(false);
    b.append(log.window(30, 45));
    expect(texts(b).at(-1)).toBe("line 44");
    expect(new Set(texts(b)).size).toBe(30);
  });

  it("bounds its memory in characters, whatever comes", () => {
    const b = new LogBuffer({ chars: 10_000, lines: 1e6 });
    const log = logOf(Array.from({ length: 400 }, (_, i): [Stream, string] => ["stdout", i % 3 === 0 ? "x".repeat(500) : `${"y".repeat(200)}\n`]));
    b.reset(log.window(0, 10));
    for (let i = 10; i < 400; i += 10) {
      b.append(log.window(i, i + 10));
      expect(b.lines.reduce((n, l) => n + l.text.length, 0)).toBeLessThanOrEqual(10_000);
    }
    for (let i = 300; i > 0; i -= 10) b.prepend(log.window(i - 10, i));
    expect(b.lines.reduce((n, l) => n + l.text.length, 0)).toBeLessThanOrEqual(10_000);
    expect(b.lines.length).toBeGreaterThan(10);
  });

  it("breaks a line of a megabyte into several without losing any of it", () => {
    const b = new LogBuffer();
    b.reset(logOf([["stdout", `${"0123456789".repeat(10_000)}\nnext\n`]]).window(0, 1));
    expect(texts(b).join("")).toBe(`${"0123456789".repeat(10_000)}next`);
    expect(b.lines.length).toBeGreaterThan(5);
    expect(new Set(b.lines.map((l) => `${l.offset}.${l.part}`)).size).toBe(b.lines.length);
  });

  it("finds the line of an offset", () => {
    const log = numbered(50);
    const b = new LogBuffer();
    b.reset(log.window(10, 40));
    const offset = log.all[25]?.offset ?? 0;
    expect(texts(b)[b.indexOf(offset)]).toBe("line 25");
    expect(texts(b)[b.indexOf(offset + 3)]).toBe("line 25");
    expect(b.indexOf(0)).toBe(0);
    expect([b.has(0), b.has(offset), b.has(log.size)]).toEqual([false, true, false]);
  });

  it("reads output that is not UTF-8", () => {
    const b = new LogBuffer();
    b.reset({ attempt: 1, size: 20, first: 0, last: 20, done: true, records: [{ offset: 0, stream: "stdout", at: "2026-01-01T00:00:00Z", bytes: btoa("caf\u00e9\n") }] });
    expect(texts(b)).toEqual(["caf\ufffd"]);
  });

  it("takes 20,000 lines in well under a second", () => {
    const log = numbered(20_000);
    const b = new LogBuffer();
    const began = performance.now();
    b.reset(log.window(0, 1000));
    for (let i = 1000; i < 20_000; i += 1000) b.append(log.window(i, i + 1000));
    expect(performance.now() - began).toBeLessThan(1000);
    expect(b.lines.length).toBe(20_000);
  });
});
