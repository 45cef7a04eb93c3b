import { describe, expect, it } from "vitest";
import type { LogMatches } from "@/api/types";
import { highlights, LogSearch, type SearchLog } from "./search";

const plain = { q: "x", regex: false, matchCase: false };

/** A log whose matches are at these offsets; one call scans 100 bytes. */
function server(offsets: readonly number[], size: number) {
  const calls: string[] = [];
  const search: SearchLog = ({ offset = 0, direction, limit }) => {
    calls.push(`${direction} ${offset}`);
    const forward = direction === "forward";
    const end = forward ? Math.min(size, offset + 100) : Math.max(0, offset - 100);
    const seen = offsets.filter((o) => (forward ? o >= offset && o < end : o < offset && o >= end));
    if (!forward) seen.reverse();
    const matches = seen.slice(0, limit);
    const cut = matches.length < seen.length;
    const last = matches.at(-1) ?? end;
    const scanned_to = cut ? (forward ? last + 1 : last) : end;
    const answer: LogMatches = { attempt: 1, matches: matches.map((o) => ({ offset: o, at: "", stream: "stdout", text: "" })), scanned_to, done: !cut && (forward ? end === size : end === 0) };
    return Promise.resolve(answer);
  };
  return { search, calls };
}

describe("LogSearch", () => {
  it("counts all matches over several scans", async () => {
    const { search } = server([5, 50, 150, 420, 470], 500);
    const s = new LogSearch(plain, search, () => undefined);
    await s.run();
    expect(s.matches).toEqual([5, 50, 150, 420, 470]);
    expect([s.done, s.busy, s.position(150), s.position(151)]).toEqual([true, false, 3, 0]);
  });

  it("finds the next and the previous match before all are counted", async () => {
    const { search } = server([5, 150, 420], 500);
    const s = new LogSearch(plain, search, () => undefined);
    expect(await s.next(5, false)).toBe(150);
    expect(await s.next(150, false)).toBe(420);
    expect(await s.next(420, false)).toBeUndefined();
    expect(await s.next(420, true)).toBe(150);
    expect(await s.next(5, true)).toBeUndefined();
  });

  it("asks the server only for what is not known", async () => {
    const { search, calls } = server([5, 150, 420], 500);
    const s = new LogSearch(plain, search, () => undefined);
    await s.run();
    const before = calls.length;
    expect(await s.next(6, false)).toBe(150);
    expect(await s.next(419, true)).toBe(150);
    expect(calls.length).toBe(before);
  });

  it("stops counting at a bound", async () => {
    const { search } = server(Array.from({ length: 100_000 }, (_, i) => i), 100_000);
    const s = new LogSearch(plain, search, () => undefined);
    await s.run();
    expect(s.matches.length).toBeGreaterThanOrEqual(2_000);
    expect(s.matches.length).toBeLessThan(2_600);
  });

  it("goes on when it is run again after a stop", async () => {
    const { search } = server([5, 150, 420], 500);
    const s = new LogSearch(plain, search, () => undefined);
    const first = s.run();
    s.stop();
    await Promise.all([s.run(), first]);
    expect([s.matches, s.done, s.busy]).toEqual([[5, 150, 420], true, false]);
  });

  it("keeps the error of a search", async () => {
    const s = new LogSearch(plain, () => Promise.reject(new Error("no RE2")), () => undefined);
    await s.run();
    expect(s.error).toEqual(new Error("no RE2"));
    expect(s.busy).toBe(false);
  });
});

describe("highlights", () => {
  it("finds every place, in both cases unless told otherwise", () => {
    expect(highlights("Error: no error", { ...plain, q: "error" })).toEqual([[0, 5], [10, 15]]);
    expect(highlights("Error: no error", { ...plain, q: "error", matchCase: true })).toEqual([[10, 15]]);
  });

  it("takes special characters as they are, and patterns as patterns", () => {
    expect(highlights("a.b axb", { ...plain, q: "a.b" })).toEqual([[0, 3]]);
    expect(highlights("a.b axb", { ...plain, q: "a.b", regex: true })).toEqual([[0, 3], [4, 7]]);
    expect(highlights("aaa", { ...plain, q: "(?i:x", regex: true })).toEqual([]);
    expect(highlights("aaa", { ...plain, q: "x*", regex: true })).toEqual([]);
  });
});
