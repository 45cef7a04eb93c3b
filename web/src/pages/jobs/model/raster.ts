import type { Plane, View } from "./grid";

/** How states look. Pixels are numbers as in the memory of an ImageData. */
export interface Look {
  /** One pixel of each state. */
  readonly colors: Uint32Array;
  /** What is between and beyond the cells. */
  readonly background: number;
  /** Pixels between two cells. */
  readonly gap: number;
  /** The pixels of a square with the state's mark, for each state; empty: cells are plain. */
  readonly tiles: readonly Uint32Array[];
  /** The length of a tile's side; at most that of a cell without its gap. */
  readonly tile: number;
}

export interface Rect {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** What the eye must find first wins where several elements share a pixel, by number of the state in taskStates; larger wins. */
const loudness = [1, 2, 4, 5, 6, 0, 9, 8, 3, 3];
/** More than any state's, and that of a pixel without an element less than any. */
const loudest = 10;

/** The loudness of each state from 1 on; those that are not among `shown` are below all that are. */
function ranksOf(shown: ReadonlySet<number> | undefined): Uint8Array {
  return Uint8Array.from(loudness, (l, state) => l + 1 + (shown && !shown.has(state) ? 0 : loudest));
}

/**
 * The pixels of a view of a plane. A cell of a pixel or more is a rectangle of whole pixels; smaller cells share pixels, which have the colour of
 * the loudest state among theirs. Only what is in view is drawn, and an element that changes draws its own pixels only.
 */
export class Raster {
  readonly words: Uint32Array;
  /** The loudest state's rank of each pixel; used while cells share pixels. */
  private ranks = new Uint8Array();
  private states: Uint8Array = new Uint8Array();
  private plane: Plane = { count: 0, cols: 1, rows: 0 };
  private scale = 1;
  private look: Look = { colors: new Uint32Array(), background: 0, gap: 0, tiles: [], tile: 0 };
  private rankOf: Uint8Array = new Uint8Array();
  /** The first column and row in view, and where each from there on begins; one more than are in view. */
  private col = 0;
  private row = 0;
  private xs: Int32Array = new Int32Array();
  private ys: Int32Array = new Int32Array();
  private dirty: Rect | undefined;

  /** `pixels` holds width × height numbers, and is drawn into. */
  constructor(
    readonly width: number,
    readonly height: number,
    pixels: ArrayBufferLike = new ArrayBuffer(width * height * 4),
  ) {
    this.words = new Uint32Array(pixels);
  }

  /** Draws all of a view; its scale is in pixels of the raster. `states` is kept: after a change in it, touch draws it. */
  draw(states: Uint8Array, plane: Plane, view: View, look: Look, shown?: ReadonlySet<number>): void {
    this.states = states;
    this.plane = plane;
    this.scale = view.scale;
    this.look = look;
    this.rankOf = ranksOf(shown);
    this.col = Math.max(0, Math.floor(view.x));
    this.row = Math.max(0, Math.floor(view.y));
    this.xs = edges(this.col, plane.cols, view.x, view.scale, this.width);
    this.ys = edges(this.row, plane.rows, view.y, view.scale, this.height);
    this.words.fill(look.background);
    if (this.shares()) this.drawShared();
    else this.drawCells();
    this.dirty = { x: 0, y: 0, width: this.width, height: this.height };
  }

  /** Draws an element again, whose state has changed. */
  touch(element: number): void {
    const { cols } = this.plane;
    const c = (element % cols) - this.col;
    const r = Math.floor(element / cols) - this.row;
    const x = this.xs[c];
    const y = this.ys[r];
    const right = this.xs[c + 1];
    const bottom = this.ys[r + 1];
    if (x === undefined || y === undefined || right === undefined || bottom === undefined || element >= this.plane.count) return;
    if (this.shares()) {
      if (x >= this.width || y >= this.height) return;
      this.drawPixel(c, r, x, y);
      this.stain(x, y, x + 1, y + 1);
      return;
    }
    for (let py = Math.max(0, y); py < Math.min(this.height, bottom); py++) this.drawLine(element, x, right, py, py - y, bottom - y);
    this.stain(Math.max(0, x), Math.max(0, y), Math.min(this.width, right), Math.min(this.height, bottom));
  }

  /** Returns the rectangle of the pixels that were drawn since it was called last. */
  takeDirty(): Rect | undefined {
    const { dirty } = this;
    this.dirty = undefined;
    return dirty;
  }

  private shares() {
    return this.scale < 1;
  }

  private stain(x0: number, y0: number, x1: number, y1: number) {
    if (x1 <= x0 || y1 <= y0) return;
    const d = this.dirty;
    const x = d ? Math.min(d.x, x0) : x0;
    const y = d ? Math.min(d.y, y0) : y0;
    this.dirty = { x, y, width: (d ? Math.max(d.x + d.width, x1) : x1) - x, height: (d ? Math.max(d.y + d.height, y1) : y1) - y };
  }

  private drawCells() {
    const { words, width, height, xs, ys, plane } = this;
    for (let r = 0; r + 1 < ys.length; r++) {
      const y = ys[r] ?? 0;
      const bottom = ys[r + 1] ?? 0;
      const first = (this.row + r) * plane.cols + this.col;
      const end = Math.min(xs.length - 1, plane.count - first);
      const from = Math.max(0, y);
      for (let py = from; py < Math.min(height, bottom); py++) {
        if (py > from && this.look.tiles.length === 0 && py - y < bottom - y - this.look.gap) {
          words.copyWithin(py * width, from * width, (from + 1) * width); // all lines of plain cells are alike
          continue;
        }
        for (let c = 0; c < end; c++) this.drawLine(first + c, xs[c] ?? 0, xs[c + 1] ?? 0, py, py - y, bottom - y);
      }
    }
  }

  /** Draws the line `k` of a cell of `size` lines. */
  private drawLine(element: number, x: number, right: number, py: number, k: number, size: number) {
    const { words, width, look } = this;
    const state = this.states[element] ?? 0;
    const at = py * width;
    const tile = look.tiles[state];
    const inner = tile ? (k < look.tile ? Math.min(right, x + look.tile) : x) : k < size - look.gap ? right - look.gap : x;
    const to = Math.min(width, right);
    let px = Math.max(0, x);
    if (tile) for (const row = k * look.tile - x; px < inner && px < to; px++) words[at + px] = tile[row + px] ?? 0;
    else for (const color = look.colors[state] ?? 0; px < inner && px < to; px++) words[at + px] = color;
    for (; px < to; px++) words[at + px] = look.background;
  }

  private drawShared() {
    const { words, width, height, xs, ys, plane, states, rankOf, look } = this;
    if (this.ranks.length !== words.length) this.ranks = new Uint8Array(words.length);
    const { ranks } = this;
    ranks.fill(0);
    for (let r = 0; r + 1 < ys.length; r++) {
      const y = ys[r] ?? 0;
      if (y >= height) break;
      const first = (this.row + r) * plane.cols + this.col;
      const end = Math.min(xs.length - 1, plane.count - first);
      for (let c = 0; c < end; c++) {
        const x = xs[c] ?? 0;
        if (x >= width) break;
        const state = states[first + c] ?? 0;
        const rank = rankOf[state] ?? 1;
        const at = y * width + x;
        if (rank > (ranks[at] ?? 0)) {
          ranks[at] = rank;
          words[at] = look.colors[state] ?? 0;
        }
      }
    }
  }

  /** Draws the pixel that the cell in a column and row shares with its neighbours. */
  private drawPixel(col: number, row: number, x: number, y: number) {
    const { xs, ys, plane } = this;
    let c0 = col;
    let r0 = row;
    while (c0 > 0 && xs[c0 - 1] === x) c0--;
    while (r0 > 0 && ys[r0 - 1] === y) r0--;
    let best = 0;
    let state = 0;
    for (let r = r0; r + 1 < ys.length && ys[r] === y; r++) {
      for (let c = c0; c + 1 < xs.length && xs[c] === x; c++) {
        const i = (this.row + r) * plane.cols + this.col + c;
        if (i >= plane.count) break;
        const s = this.states[i] ?? 0;
        const rank = this.rankOf[s] ?? 1;
        if (rank > best) [best, state] = [rank, s];
      }
    }
    this.words[y * this.width + x] = this.look.colors[state] ?? 0;
  }
}

/** Where the cells from `first` on begin that are in view, in pixels; the last number is where the last of them ends. */
function edges(first: number, cells: number, from: number, scale: number, pixels: number): Int32Array {
  const last = Math.min(cells, Math.ceil(from + pixels / scale));
  const edge = scale < 1 ? (at: number) => Math.max(0, Math.floor(at)) : Math.round;
  return Int32Array.from({ length: Math.max(0, last - first) + 1 }, (_, k) => edge((first + k - from) * scale));
}
