import { describe, expect, it } from "vitest";
import { taskStates } from "@/api/types";
import { Raster, type Look } from "./raster";

const background = 99;
const plain: Look = { colors: Uint32Array.from(taskStates, (_, i) => i), background, gap: 0, tiles: [], tile: 0 };

/** The lines of a raster as text: a digit for each state, a dot for the background. */
function lines(r: Raster): string[] {
  return Array.from({ length: r.height }, (_, y) => Array.from(r.words.subarray(y * r.width, (y + 1) * r.width), (w) => (w === background ? "." : String(w))).join(""));
}

describe("cells of a pixel and more", () => {
  const states = Uint8Array.of(1, 2, 3, 4, 5);
  const plane = { count: 5, cols: 3, rows: 2 };

  it("are rectangles with a gap, and nothing is beyond the last one", () => {
    const r = new Raster(9, 6);
    r.draw(states, plane, { x: 0, y: 0, scale: 3 }, { ...plain, gap: 1 });
    expect(lines(r)).toEqual(["11.22.33.", "11.22.33.", ".........", "44.55....", "44.55....", "........."]);
  });

  it("are cut at the edges of the view", () => {
    const r = new Raster(4, 4);
    r.draw(states, plane, { x: 0.5, y: 0.5, scale: 2 }, plain);
    expect(lines(r)).toEqual(["1223", "455.", "455.", "...."]);
  });

  it("show tiles", () => {
    const r = new Raster(6, 3);
    r.draw(states, plane, { x: 0, y: 0, scale: 3 }, { ...plain, gap: 1, tile: 2, tiles: taskStates.map((_, i) => Uint32Array.of(i, 0, 0, i)) });
    expect(lines(r)).toEqual(["10.20.", "01.02.", "......"]);
  });
});

describe("smaller cells", () => {
  const states = new Uint8Array(16).fill(5);
  states[9] = 6;
  states[3] = 3;
  const plane = { count: 16, cols: 4, rows: 4 };

  it("show one failed element among many that succeeded, and what is asked for before all else", () => {
    const r = new Raster(1, 1);
    r.draw(states, plane, { x: 0, y: 0, scale: 0.2 }, plain);
    expect(lines(r)).toEqual(["6"]);
    r.draw(states, plane, { x: 0, y: 0, scale: 0.2 }, plain, new Set([3]));
    expect(lines(r)).toEqual(["3"]);
  });
});

describe("touch", () => {
  it("leaves what a new drawing of all would, at every scale", () => {
    let seed = 1;
    const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
    const plane = { count: 500, cols: 23, rows: 22 };
    const tiles = (size: number) => taskStates.map((_, i) => new Uint32Array(size * size).fill(i));
    for (const [scale, look] of [
      [0.21, plain],
      [0.5, plain],
      [0.95, plain],
      [1, plain],
      [1.7, plain],
      [4.3, { ...plain, gap: 1 }],
      [9.6, { ...plain, gap: 1, tile: 8, tiles: tiles(8) }],
    ] as const) {
      for (const [x, y] of [[0, 0], [3.3, 7.8], [20.9, 21.2]] as const) {
        const states = Uint8Array.from({ length: plane.count }, () => random(taskStates.length));
        const one = new Raster(40, 31);
        one.draw(states, plane, { x, y, scale }, look);
        one.takeDirty();
        const before = one.words.slice();
        for (let n = 0; n < 60; n++) {
          const i = random(plane.count);
          states[i] = random(taskStates.length);
          one.touch(i);
        }
        const all = new Raster(40, 31);
        all.draw(states, plane, { x, y, scale }, look);
        expect(lines(one), `scale ${scale} at ${x}, ${y}`).toEqual(lines(all));
        const dirty = one.takeDirty();
        before.forEach((w, at) => {
          const px = at % 40;
          const py = Math.floor(at / 40);
          const inside = dirty && px >= dirty.x && px < dirty.x + dirty.width && py >= dirty.y && py < dirty.y + dirty.height;
          if (!inside) expect(one.words[at]).toBe(w);
        });
      }
    }
  });

  it("draws nothing for an element that is not in view", () => {
    const r = new Raster(4, 4);
    r.draw(new Uint8Array(100), { count: 100, cols: 10, rows: 10 }, { x: 5, y: 5, scale: 2 }, plain);
    r.takeDirty();
    for (const i of [0, 44, 54, 57, 77, 99, 100, -1]) r.touch(i);
    expect(r.takeDirty()).toBeUndefined();
    r.touch(66);
    expect(r.takeDirty()).toEqual({ x: 2, y: 2, width: 2, height: 2 });
  });
});
