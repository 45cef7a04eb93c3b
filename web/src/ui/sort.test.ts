import { describe, expect, it } from "vitest";
import { Sorter, sortRows } from "./sort";

interface Row {
  readonly id: string;
  readonly size?: number;
}
const rows: Row[] = [{ id: "b", size: 10 }, { id: "a" }, { id: "c", size: 9 }];

describe("sortRows", () => {
  it("sorts numbers as numbers and puts unknown ones last in both directions", () => {
    expect(sortRows(rows, (r) => r.size, false).map((r) => r.id)).toEqual(["c", "b", "a"]);
    expect(sortRows(rows, (r) => r.size, true).map((r) => r.id)).toEqual(["b", "c", "a"]);
  });
  it("sorts names with numbers as people do", () => {
    expect(sortRows([{ id: "gpu10" }, { id: "gpu9" }], (r) => r.id, false).map((r) => r.id)).toEqual(["gpu9", "gpu10"]);
  });
});

describe("Sorter", () => {
  it("gives the new rows in the right order, whether or not their values changed", () => {
    const sorter = new Sorter<Row>();
    const sort = (list: readonly Row[], desc = false) => sorter.sort(list, (r) => r.size, desc).map((r) => r.id).join("");
    expect(sort(rows)).toBe("cba");
    expect(sort(rows.map((r) => ({ ...r, id: r.id.toUpperCase() })))).toBe("CBA");
    expect(sort(rows, true)).toBe("bca");
    expect(sort([...rows, { id: "d", size: 11 }], true)).toBe("dbca");
    expect(sort([{ id: "x", size: 1 }, { id: "y", size: 2 }, { id: "z", size: 3 }, { id: "w", size: 0 }], true)).toBe("zyxw");
    expect(sort([])).toBe("");
    expect(sort([{ id: "x" }])).toBe("x");
  });
});
