import { describe, expect, it } from "vitest";
import { parseIgnore } from "./ignore";
import { chosen, compareBytes, travelling } from "./upload";

describe(".musterignore", () => {
  const cases: [string, string, boolean, boolean][] = [
    ["*.pt", "a/b/model.pt", false, true],
    ["*.pt", "model.pth", false, false],
    ["/data", "data", true, true],
    ["/data", "a/data", true, false],
    ["data/", "a/data", true, true],
    ["data/", "data", false, false],
    ["*.log\n!keep.log", "keep.log", false, false],
    ["*.log\n!keep.log", "other.log", false, true],
    ["a/**", "a/b/c", false, true],
    ["a/**", "a", true, false],
    ["a/**/z", "a/z", false, true],
    ["a/**/z", "a/b/c/z", false, true],
    ["# comment", "# comment", false, false],
    ["\\#x", "#x", false, true],
    ["f[0-9].txt", "f7.txt", false, true],
    ["f?.txt", "f12.txt", false, false],
    ["", ".git", true, true],
    ["", "a/.muster", true, true],
    ["a.b", "axb", false, false],
  ];
  it.each(cases)("%j: %s (folder: %s) is ignored: %s", (rules, path, folder, want) => expect(parseIgnore(rules)(path, folder)).toBe(want));
});

describe("what travels", () => {
  const entry = (path: string, text = "x") => ({ path, file: new File([text], path) });
  it("leaves out what is ignored, and what lies in ignored folders", async () => {
    const list = await travelling([entry("z.py"), entry("data/raw/a.bin"), entry(".musterignore", "data/\n*.tmp\n"), entry("x.tmp"), entry(".git/config"), entry("a/b.py")]);
    expect(list.map((e) => e.path)).toEqual([".musterignore", "a/b.py", "z.py"]);
  });
  it("is sorted by bytes, as the server's hash of the list depends on it", async () => {
    const list = await travelling([entry("é"), entry("z"), entry("B"), entry("a"), entry("\u{1F600}"), entry("\uFF5E")]);
    expect(list.map((e) => e.path)).toEqual(["B", "a", "z", "é", "\uFF5E", "\u{1F600}"]);
    expect(compareBytes(new Uint8Array([1]), new Uint8Array([1, 0]))).toBeLessThan(0);
  });
  it("has paths without the name of the chosen folder", () => {
    const file = new File(["x"], "b.py");
    Object.defineProperty(file, "webkitRelativePath", { value: "proj/a/b.py" });
    expect(chosen([file])).toEqual({ name: "proj", entries: [{ path: "a/b.py", file }] });
  });
});
