import { describe, expect, it } from "vitest";
import type { Line } from "./buffer";
import { layOut, lineAt } from "./layout";
import { cssOf, paint } from "./paint";

const line = (text: string): Line => ({ offset: 0, part: 0, stream: "stdout", at: "", text, spans: undefined });

describe("layOut", () => {
  const lines = [line("a".repeat(25)), line(""), line("日本日本日本"), line("b")];

  it("gives each line a row, or as many as its columns take", () => {
    expect([...layOut(lines, undefined).rows]).toEqual([0, 1, 2, 3, 4]);
    expect([...layOut(lines, 10).rows]).toEqual([0, 3, 4, 6, 7]);
    expect(layOut(lines, 10).widest).toBe(25);
  });

  it("finds the line of a row", () => {
    const l = layOut(lines, 10);
    expect([0, 2, 3, 4, 5, 6, 99].map((r) => lineAt(l, r))).toEqual([0, 0, 1, 2, 2, 3, 3]);
    expect(lineAt(layOut([], 10), 0)).toBe(0);
  });
});

describe("paint", () => {
  it("splits text where styles and matches begin and end", () => {
    const spans = [{ text: "abcd", style: { fg: "1" } }, { text: "efgh", style: undefined }];
    expect(paint({ text: "abcdefgh", spans }, [[2, 6], [7, 8]]).map((p) => [p.text, p.style?.fg, p.mark])).toEqual([
      ["ab", "1", false],
      ["cd", "1", true],
      ["ef", undefined, true],
      ["g", undefined, false],
      ["h", undefined, true],
    ]);
  });

  it("loses no text", () => {
    for (let n = 0; n < 50; n++) {
      const text = "x".repeat(n);
      const marks: [number, number][] = [];
      for (let i = n % 3; i + 2 <= n; i += 5) marks.push([i, i + 2]);
      expect(paint({ text, spans: undefined }, marks).map((p) => p.text).join("")).toBe(text);
    }
  });
});

describe("cssOf", () => {
  it("takes colours of the theme by their number", () => {
    expect(cssOf({ fg: "1", bold: true })).toEqual({ color: "var(--ansi-1)", fontWeight: 700 });
    expect(cssOf({ underline: true, strike: true })).toEqual({ textDecoration: "underline line-through" });
    expect(cssOf({ fg: "2", inverse: true })).toEqual({ color: "var(--card)", background: "var(--ansi-2)" });
  });
});
