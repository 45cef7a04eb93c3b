import { describe, expect, it } from "vitest";
import { parseCsv, separatorOf } from "./csv";

describe("parseCsv", () => {
  it("reads quotes, line breaks in cells and both line ends", () => {
    expect(parseCsv('a,b\r\n"x, y","say ""hi""\nthere"\n\n1,2', true, 10)).toEqual({ header: ["a", "b"], rows: [["x, y", 'say "hi"\nthere'], ["1", "2"]], more: false });
  });

  it("leaves out the last row of a head, which may be cut", () => {
    expect(parseCsv("a,b\n1,2\n3,4", false, 10)).toEqual({ header: ["a", "b"], rows: [["1", "2"]], more: true });
  });

  it("stops after so many rows", () => {
    const t = parseCsv(`n\n${Array.from({ length: 1000 }, (_, i) => i).join("\n")}`, true, 5);
    expect(t.rows.map((r) => r[0])).toEqual(["0", "1", "2", "3", "4"]);
    expect(t.more).toBe(true);
  });

  it("skips a byte order mark, and takes an empty text", () => {
    expect(parseCsv("\ufeffa\n1", true, 10).header).toEqual(["a"]);
    expect(parseCsv("", true, 10)).toEqual({ header: [], rows: [], more: false });
  });
});

describe("separatorOf", () => {
  it("takes the one that all lines have", () => {
    expect([separatorOf("a;b\n1,5;2,5"), separatorOf("a\tb\n1\t2"), separatorOf("a\n1"), separatorOf('"a;b",c\n"d;e",f')]).toEqual([";", "\t", ",", ","]);
  });
});
