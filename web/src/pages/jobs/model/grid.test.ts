import { describe, expect, it } from "vitest";
import { clamp, elementAt, fit, maxScale, moveBy, reveal, zoomAt } from "./grid";

describe("fit", () => {
  it.each([
    [1, 1376], [7, 366], [200, 1376], [5_000, 900], [100_000, 1376], [1_000_000, 1376], [1_000_000, 366], [10_000_000, 1376],
  ])("shows all of %i elements in %i pixels of width", (count, width) => {
    const { plane, height, scale } = fit(count, width, 760);
    expect(plane.cols * plane.rows).toBeGreaterThanOrEqual(count);
    expect((plane.rows - 1) * plane.cols).toBeLessThan(count);
    expect(plane.cols * scale).toBeLessThanOrEqual(width);
    expect(height).toBeLessThanOrEqual(760);
    expect(plane.rows * scale).toBeLessThanOrEqual(760 + 1);
  });
});

describe("view", () => {
  const plane = { count: 1_000, cols: 100, rows: 10 };
  const size = { width: 200, height: 40 };
  it("keeps what is under the pixel when it zooms", () => {
    const before = { x: 10, y: 2, scale: 4 };
    const after = zoomAt(before, 2, 50, 20, 1);
    expect(elementAt(after, plane, 50, 20)).toBe(elementAt(before, plane, 50, 20));
    expect(zoomAt(before, 1e6, 0, 0, 1).scale).toBe(maxScale);
    expect(zoomAt(before, 1e-6, 0, 0, 1).scale).toBe(1);
  });
  it("stays within the plane", () => {
    expect(clamp({ x: -5, y: 99, scale: 4 }, plane, size, 1)).toEqual({ x: 0, y: 0, scale: 4 });
    expect(clamp({ x: 90, y: 9, scale: 10 }, plane, size, 1)).toEqual({ x: 80, y: 6, scale: 10 });
  });
  it("has no element beyond the last one", () => {
    expect(elementAt({ x: 0, y: 0, scale: 1 }, { count: 15, cols: 10, rows: 2 }, 6, 1)).toBeUndefined();
    expect(elementAt({ x: 0, y: 0, scale: 1 }, { count: 15, cols: 10, rows: 2 }, 4, 1)).toBe(14);
  });
  it("moves only as far as it takes to show an element", () => {
    const view = { x: 0, y: 0, scale: 10 };
    expect(reveal(view, plane, size, 205)).toEqual(expect.objectContaining({ x: 0 }));
    const far = reveal(view, plane, size, 999);
    expect(elementAt(clamp(far, plane, size, 1), plane, 199, 39)).toBe(999);
  });
});

describe("moveBy", () => {
  const plane = { count: 25, cols: 10, rows: 3 };
  it("moves along rows and columns and stays inside", () => {
    expect(moveBy("ArrowRight", 9, plane, 2)).toBe(10);
    expect(moveBy("ArrowDown", 3, plane, 2)).toBe(13);
    expect(moveBy("ArrowUp", 3, plane, 2)).toBe(3);
    expect(moveBy("ArrowLeft", 0, plane, 2)).toBe(0);
    expect(moveBy("ArrowDown", 17, plane, 2)).toBe(24);
    expect(moveBy("ArrowDown", 24, plane, 2)).toBe(24);
    expect(moveBy("End", 0, plane, 2)).toBe(24);
    expect(moveBy("x", 0, plane, 2)).toBeUndefined();
  });
});
