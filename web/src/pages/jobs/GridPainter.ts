import { taskStates } from "@/api/types";
import { clamp, elementAt, reveal, zoomAt, type Plane, type Size, type View } from "./model/grid";
import { Raster, type Look } from "./model/raster";
import { paintTile, palette, pixel, rgb } from "./model/tiles";

/** From this many CSS pixels a cell on, there is a gap to the next one. */
const gapScale = 4;
/** From this many on, it has the mark of its state. */
const markScale = 7;

/** Draws a view of states on a canvas, apart from React: a frame is drawn at most once, and only if something changed that it shows. */
export class GridPainter {
  private view: View;
  private states: Uint8Array = new Uint8Array();
  private shown: ReadonlySet<number> | undefined;
  private cssColors: readonly string[] = [];
  private ink = "#000000";
  private card = "#ffffff";
  private colors: Uint32Array = new Uint32Array();
  private look: Look | undefined;
  private readonly ratio = Math.min(3, devicePixelRatio || 1);
  private readonly context: CanvasRenderingContext2D | null;
  private readonly pixels: ImageData;
  private readonly raster: Raster;
  /** The view, the data or the colours are others than the raster's. */
  private stale = true;
  private cursor: number | undefined;
  private cursorStale = true;
  /** Where the cursor was drawn last. */
  private marked: [number, number, number] | undefined;
  private frame = 0;

  /** `least` is the scale at which all is seen; onZoom hears whether the scale is above that. */
  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly plane: Plane,
    private readonly size: Size,
    private readonly least: number,
    private readonly onZoom: (zoomed: boolean) => void,
  ) {
    canvas.width = Math.round(size.width * this.ratio);
    canvas.height = Math.round(size.height * this.ratio);
    this.context = canvas.getContext("2d", { alpha: false });
    this.pixels = new ImageData(canvas.width, canvas.height);
    this.raster = new Raster(canvas.width, canvas.height, this.pixels.data.buffer);
    this.view = { x: 0, y: 0, scale: least };
  }

  get scale() {
    return this.view.scale;
  }
  get pageRows() {
    return Math.max(1, Math.floor(this.size.height / this.view.scale) - 1);
  }

  stop() {
    cancelAnimationFrame(this.frame);
  }

  setData(states: Uint8Array, shown: ReadonlySet<number> | undefined) {
    this.states = states;
    this.shown = shown;
    const style = getComputedStyle(this.canvas);
    const value = (name: string) => style.getPropertyValue(name).trim();
    this.cssColors = taskStates.map((s) => value(`--state-${s}`));
    this.card = value("--card") || "#ffffff";
    this.ink = value("--mantine-color-text") || "#000000";
    this.colors = palette(this.cssColors, this.card, shown);
    this.look = undefined;
    this.drawAll();
  }

  touch(elements: readonly number[]) {
    if (this.stale) return; // all is drawn with the next frame
    for (const i of elements) this.raster.touch(i);
    this.draw();
  }

  setCursor(cursor: number | undefined) {
    this.cursor = cursor;
    this.cursorStale = true;
    this.draw();
  }

  zoom(factor: number, px = this.size.width / 2, py = this.size.height / 2) {
    this.show(zoomAt(this.view, factor, px, py, this.least));
  }

  all() {
    this.show({ x: 0, y: 0, scale: this.least });
  }

  /** Moves by pixels; returns whether anything moved. */
  pan(dx: number, dy: number): boolean {
    const { x, y } = this.view;
    this.show({ ...this.view, x: x - dx / this.view.scale, y: y - dy / this.view.scale });
    return this.view.x !== x || this.view.y !== y;
  }

  reveal(element: number) {
    this.show(reveal(this.view, this.plane, this.size, element));
  }

  at(px: number, py: number): number | undefined {
    return elementAt(this.view, this.plane, px, py);
  }

  private show(view: View) {
    if (view.scale !== this.view.scale) this.look = undefined;
    this.view = clamp(view, this.plane, this.size, this.least);
    this.onZoom(this.view.scale > this.least * 1.001);
    this.drawAll();
  }

  private drawAll() {
    this.stale = true;
    this.draw();
  }

  private draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  private paint() {
    const ctx = this.context;
    if (!ctx) return;
    const { view, raster, plane, ratio } = this;
    const scale = view.scale * ratio;
    if (this.stale) {
      this.look ??= this.makeLook();
      raster.draw(this.states, plane, { ...view, scale }, this.look, this.shown);
      this.stale = false;
    }
    const dirty = raster.takeDirty();
    if (!dirty && !this.cursorStale) return;
    if (dirty) ctx.putImageData(this.pixels, 0, 0, dirty.x, dirty.y, dirty.width, dirty.height);
    this.cursorStale = false;
    if (this.marked) {
      const [x, y, side] = this.marked;
      ctx.putImageData(this.pixels, 0, 0, x, y, side, side);
      this.marked = undefined;
    }
    if (this.cursor === undefined || this.cursor >= plane.count) return;
    const x = ((this.cursor % plane.cols) - view.x) * scale;
    const y = (Math.floor(this.cursor / plane.cols) - view.y) * scale;
    const grow = Math.max(2, (8 * ratio - scale) / 2);
    const side = scale + 2 * grow;
    ctx.lineWidth = 4 * ratio;
    ctx.strokeStyle = this.card;
    ctx.strokeRect(x - grow, y - grow, side, side);
    ctx.lineWidth = 2 * ratio;
    ctx.strokeStyle = this.ink;
    ctx.strokeRect(x - grow, y - grow, side, side);
    const edge = grow + 3 * ratio;
    this.marked = [Math.floor(x - edge), Math.floor(y - edge), Math.ceil(scale + 2 * edge) + 1];
  }

  /** The pixels of all states at the scale of the view. */
  private makeLook(): Look {
    const scale = this.view.scale * this.ratio;
    const marks = this.view.scale >= markScale;
    const gap = marks ? Math.max(1, Math.round(scale * 0.12)) : this.view.scale >= gapScale ? Math.max(1, Math.round(this.ratio)) : 0;
    const tile = Math.max(1, Math.round(scale) - gap);
    return { colors: this.colors, background: pixel(rgb(this.card)), gap, tile, tiles: marks ? this.makeTiles(tile) : [] };
  }

  private makeTiles(size: number): Uint32Array[] {
    const canvas = () => {
      const c = document.createElement("canvas");
      c.width = c.height = size;
      return c;
    };
    const mark = canvas();
    const m = mark.getContext("2d");
    const tile = canvas();
    const t = tile.getContext("2d", { alpha: false, willReadFrequently: true });
    if (!m || !t) return [];
    return taskStates.map((_, code) => {
      paintTile(m, code, size, this.cssColors[code] ?? "#888888");
      t.globalAlpha = 1;
      t.fillStyle = this.card;
      t.fillRect(0, 0, size, size);
      t.globalAlpha = this.shown && !this.shown.has(code) ? 0.12 : 1;
      t.drawImage(mark, 0, 0);
      return new Uint32Array(t.getImageData(0, 0, size, size).data.buffer);
    });
  }
}
