import { describe, expect, it } from "vitest";
import { kindOf, looksLikeText, mimeOf } from "./kinds";
import { treeOf } from "./tree";

const file = (name: string, size = 1) => ({ name, size, sha256: name });

describe("treeOf", () => {
  it("nests folders and sorts numbers by value", () => {
    const t = treeOf([file("b/part-10.txt", 5), file("b/part-9.txt", 5), file("a.txt"), file("b/c/d.txt", 7)]);
    expect(t.files.map((f) => f.name)).toEqual(["a.txt"]);
    expect(t.folders.map((f) => [f.name, f.path, f.count, f.size])).toEqual([["b", "b/", 3, 17]]);
    expect(t.folders[0]?.files.map((f) => f.name)).toEqual(["b/part-9.txt", "b/part-10.txt"]);
    expect([t.count, t.size]).toEqual([4, 18]);
  });
});

describe("kindOf", () => {
  it("goes by the extension, in any case", () => {
    expect(["a/b.PNG", "x.tsv", "m.ipynb", "d.parquet", "README", "a.b/model", ".env", "x.unknown"].map(kindOf)).toEqual(["image", "csv", "json", "parquet", "text", "unknown", "text", "unknown"]);
    expect(mimeOf("a.mp3")).toBe("audio/mpeg");
  });
});

describe("looksLikeText", () => {
  it("tells text from binary data", () => {
    const bytes = (s: string) => new TextEncoder().encode(s);
    expect([looksLikeText(bytes("héllo\n\u001b[31mred")), looksLikeText(bytes("a\u0000b")), looksLikeText(Uint8Array.from([1, 2, 3, 4])), looksLikeText(new Uint8Array())]).toEqual([true, false, false, true]);
  });
});
