import { describe, expect, it } from "vitest";
import { changes, diffLines, fold, leaves, type DiffLine } from "./diff";

const side = (lines: readonly DiffLine[], not: DiffLine["kind"]) => lines.filter((l) => l.kind !== not).map((l) => l.text).join("\n");

describe("diffLines", () => {
  it("changes as few lines as possible", () => {
    const lines = diffLines("a\nb\nc\nd\n", "a\nx\nc\nd\ne\n");
    expect(lines.map((l) => `${l.kind[0]}${l.text}`)).toEqual(["sa", "rb", "ax", "sc", "sd", "ae"]);
    expect(lines[5]).toEqual({ kind: "added", text: "e", after: 5 });
    expect(changes(lines)).toEqual({ removed: 1, added: 2 });
  });
  it("says that equal texts, also empty ones, are the same", () => {
    expect(changes(diffLines("a\nb", "a\nb\n"))).toEqual({ removed: 0, added: 0 });
    expect(diffLines("", "")).toEqual([]);
    expect(changes(diffLines("", "a\nb"))).toEqual({ removed: 0, added: 2 });
  });
  it("keeps both texts whole, whatever they are", () => {
    let seed = 7;
    const random = (n: number) => (seed = (seed * 48_271) % 2_147_483_647) % n;
    for (let round = 0; round < 300; round++) {
      const text = () => Array.from({ length: random(14) }, () => "abc"[random(3)] ?? "").join("\n");
      const [a, b] = [text(), text()];
      const lines = diffLines(a, b);
      expect(side(lines, "added")).toBe(a.replace(/\n$/, ""));
      expect(side(lines, "removed")).toBe(b.replace(/\n$/, ""));
    }
  });
});

describe("fold", () => {
  it("keeps three lines around a change and folds the rest", () => {
    const text = Array.from({ length: 30 }, (_, i) => `line ${i}`);
    const hunks = fold(diffLines(text.join("\n"), text.map((l, i) => (i === 15 ? "new" : l)).join("\n")));
    expect(hunks.map((h) => ("folded" in h ? `fold ${h.folded}` : `show ${h.lines.length}`))).toEqual(["fold 12", "show 8", "fold 11"]);
  });
});

describe("leaves", () => {
  it("names every value by its path", () => {
    expect(leaves({ a: { b: [1, "x"] }, c: true, d: [] })).toEqual([{ path: "a.b.0", text: "1" }, { path: "a.b.1", text: "x" }, { path: "c", text: "true" }, { path: "d", text: "[]" }]);
  });
});
