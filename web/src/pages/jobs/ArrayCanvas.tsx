import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useImperativeHandle, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type Ref } from "react";
import { taskStates } from "@/api/types";
import css from "./grid.module.css";
import { clamp, elementAt, fit, loudest, moveBy, reveal, zoomAt, type Plane, type View } from "./model/grid";
import { paintTile, palette } from "./model/tiles";

export interface ArrayHandle {
  /** These elements have another state now. */
  touch: (elements: readonly number[]) => void;
  zoom: (factor: number) => void;
  all: () => void;
  reveal: (element: number) => void;
}

interface Props {
  readonly ref: Ref<ArrayHandle>;
  /** Changed in place; touch says where. */
  readonly states: Uint8Array;
  readonly shown: ReadonlySet<number> | undefined;
  readonly cursor: number | undefined;
  readonly onCursor: (element: number | undefined) => void;
  readonly onHover: (element: number | undefined) => void;
  readonly onOpen: (element: number) => void;
  readonly onJump: (step: 1 | -1) => void;
  readonly label: string;
}

/** From this many pixels a cell on, it has the mark of its state and a gap to the next one. */
const markScale = 7;
const maxHeight = 800;

/** Draws states as cells. One pixel of an image is one cell, or one block of cells; the canvas shows a part of it, scaled. */
export function ArrayCanvas({ ref, states, shown, cursor, onCursor, onHover, onOpen, onJump, label }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light");
  const [width, setWidth] = useState(0);
  const [zoomed, setZoomed] = useState(false);
  const painter = useRef<Painter | null>(null);
  const geometry = useMemo(() => fit(states.length, Math.max(16, width), maxHeight), [states.length, width]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    if (!element || width === 0) return;
    const p = new Painter(element, geometry.plane, { width, height: geometry.height }, geometry.scale, setZoomed);
    painter.current = p;
    setZoomed(false);
    return () => p.stop();
  }, [geometry, width]);
  useEffect(() => {
    painter.current?.setData(states, shown);
  }, [states, shown, scheme, geometry, width]);
  useEffect(() => {
    painter.current?.setCursor(cursor);
  }, [cursor, geometry, width]);

  useImperativeHandle(ref, () => ({
    touch: (elements) => painter.current?.touch(elements),
    zoom: (factor) => painter.current?.zoom(factor),
    all: () => painter.current?.all(),
    reveal: (element) => painter.current?.reveal(element),
  }));

  // React listens to wheels passively, but a zoom must keep the page where it is.
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const wheel = (e: WheelEvent) => {
      const p = painter.current;
      if (!p) return;
      if (e.ctrlKey || e.metaKey) {
        e.preventDefault();
        p.zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0025)), e.offsetX, e.offsetY);
      } else if (p.pan(-e.deltaX, -e.deltaY)) e.preventDefault();
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const drag = useRef({ moved: 0 });
  const down = (e: PointerEvent<HTMLCanvasElement>) => {
    pointers.current.set(e.pointerId, { x: e.nativeEvent.offsetX, y: e.nativeEvent.offsetY });
    if (pointers.current.size === 1) drag.current.moved = 0;
    if (zoomed || e.pointerType !== "touch") e.currentTarget.setPointerCapture(e.pointerId);
  };
  const move = (e: PointerEvent<HTMLCanvasElement>) => {
    const p = painter.current;
    if (!p) return;
    const { offsetX: x, offsetY: y } = e.nativeEvent;
    const before = pointers.current.get(e.pointerId);
    if (!before) {
      onHover(p.at(x, y));
      return;
    }
    const others = [...pointers.current].filter(([id]) => id !== e.pointerId);
    const other = others[0]?.[1];
    if (other) {
      const d0 = Math.hypot(before.x - other.x, before.y - other.y);
      const d1 = Math.hypot(x - other.x, y - other.y);
      if (d0 > 4) p.zoom(d1 / d0, (x + other.x) / 2, (y + other.y) / 2);
      drag.current.moved = 99;
    } else {
      drag.current.moved += Math.abs(x - before.x) + Math.abs(y - before.y);
      if (drag.current.moved > 4) {
        p.pan(x - before.x, y - before.y);
        e.currentTarget.dataset["dragging"] = "";
      }
    }
    pointers.current.set(e.pointerId, { x, y });
  };
  const up = (e: PointerEvent<HTMLCanvasElement>) => {
    const known = pointers.current.delete(e.pointerId);
    delete e.currentTarget.dataset["dragging"];
    const i = painter.current?.at(e.nativeEvent.offsetX, e.nativeEvent.offsetY);
    if (!known || e.type !== "pointerup" || drag.current.moved > 4 || e.button !== 0 || i === undefined) return;
    // A finger cannot hit a cell of few pixels: it zooms in there first.
    const p = painter.current;
    if (p && p.scale < 6 && e.pointerType === "touch") p.zoom(12 / p.scale, e.nativeEvent.offsetX, e.nativeEvent.offsetY);
    else onOpen(i);
  };
  const key = (e: KeyboardEvent) => {
    const p = painter.current;
    if (!p || e.ctrlKey || e.metaKey || e.altKey) return;
    const to = cursor === undefined ? (e.key.startsWith("Arrow") ? 0 : e.key === "Home" ? 0 : e.key === "End" ? states.length - 1 : undefined) : moveBy(e.key, cursor, geometry.plane, p.pageRows);
    if (to !== undefined) {
      onCursor(to);
      p.reveal(to);
    } else if (e.key === "Enter" && cursor !== undefined) onOpen(cursor);
    else if (e.key === "+" || e.key === "=") p.zoom(1.6);
    else if (e.key === "-") p.zoom(1 / 1.6);
    else if (e.key === "0") p.all();
    else if (e.key === "n" || e.key === "N") onJump(e.key === "n" ? 1 : -1);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  return (
    <div className={css.frame}>
      <div ref={host} className={css.host} style={{ height: geometry.height }}>
        {/* Its cells cannot be elements: the canvas takes the keys, and the page says where the cursor is. */}
        {/* eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role */}
        <canvas role="application"
          ref={canvas}
          className={css.canvas}
          data-zoomed={zoomed || undefined}
          data-testid="array"
          tabIndex={0}
          aria-label={label}
          aria-roledescription="grid of elements"
          onPointerDown={down}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={up}
          onPointerLeave={() => onHover(undefined)}
          onKeyDown={key}
        />
      </div>
    </div>
  );
}

/** What is drawn, apart from React: a frame is drawn at most once, when something changed. */
class Painter {
  private view: View;
  private states = new Uint8Array();
  private shown: ReadonlySet<number> | undefined;
  /** The colour of each state as one pixel. */
  private colors = new Uint32Array();
  private tiles: (HTMLCanvasElement | undefined)[] = [];
  private tileSize = 0;
  private cssColors: readonly string[] = [];
  private ink = "#000000";
  private card = "#ffffff";
  private readonly image = document.createElement("canvas");
  private pixels: ImageData | undefined;
  /** The same pixels, one number each. */
  private words = new Uint32Array();
  /** Cells along one side of a pixel of the image. */
  private readonly block: number;
  private dirtyRows: [number, number] | undefined;
  private cursor: number | undefined;
  private frame = 0;
  private readonly ratio = Math.min(3, devicePixelRatio || 1);

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly plane: Plane,
    private readonly size: { width: number; height: number },
    private readonly least: number,
    private readonly onZoom: (zoomed: boolean) => void,
  ) {
    canvas.width = Math.round(size.width * this.ratio);
    canvas.height = Math.round(size.height * this.ratio);
    this.view = { x: 0, y: 0, scale: least };
    // An image of at most a few million pixels; a pixel of a screen with more of them than that shows a block anyway.
    this.block = least >= 1 ? 1 : Math.max(1, Math.round(1 / (least * this.ratio)));
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
    this.states = states as Uint8Array<ArrayBuffer>;
    this.shown = shown;
    const style = getComputedStyle(this.canvas);
    const value = (name: string) => style.getPropertyValue(name).trim();
    this.cssColors = taskStates.map((s) => value(`--state-${s}`));
    this.card = value("--card") || "#ffffff";
    this.ink = value("--mantine-color-text") || "#000000";
    const colors = palette(this.cssColors, this.card, shown);
    const bytes = new Uint8Array(taskStates.length * 4).fill(255);
    for (let i = 0; i < taskStates.length; i++) bytes.set(colors.subarray(i * 3, i * 3 + 3), i * 4);
    this.colors = new Uint32Array(bytes.buffer);
    this.tileSize = 0;
    this.paintAll();
    this.draw();
  }

  touch(elements: readonly number[]) {
    const { cols } = this.plane;
    const width = this.pixels?.width;
    if (!this.pixels || !width) return;
    for (const i of elements) {
      const bx = Math.floor((i % cols) / this.block);
      const by = Math.floor(i / cols / this.block);
      this.paintBlock(by * width + bx, bx, by);
      this.dirtyRows = this.dirtyRows ? [Math.min(this.dirtyRows[0], by), Math.max(this.dirtyRows[1], by)] : [by, by];
    }
    this.draw();
  }

  setCursor(cursor: number | undefined) {
    this.cursor = cursor;
    this.draw();
  }

  zoom(factor: number, px = this.size.width / 2, py = this.size.height / 2) {
    this.look(zoomAt(this.view, factor, px, py, this.least));
  }

  all() {
    this.look({ x: 0, y: 0, scale: this.least });
  }

  /** Moves by pixels; returns whether anything moved. */
  pan(dx: number, dy: number): boolean {
    const { x, y } = this.view;
    this.look({ ...this.view, x: x - dx / this.view.scale, y: y - dy / this.view.scale });
    return this.view.x !== x || this.view.y !== y;
  }

  reveal(element: number) {
    this.look(reveal(this.view, this.plane, this.size, element));
  }

  at(px: number, py: number): number | undefined {
    return elementAt(this.view, this.plane, px, py);
  }

  private look(view: View) {
    this.view = clamp(view, this.plane, this.size, this.least);
    this.onZoom(this.view.scale > this.least * 1.001);
    this.draw();
  }

  private paintAll() {
    const w = Math.ceil(this.plane.cols / this.block);
    const h = Math.ceil(this.plane.rows / this.block);
    if (this.image.width !== w || this.image.height !== h || !this.pixels) {
      this.image.width = w;
      this.image.height = h;
      this.pixels = new ImageData(w, h);
      this.words = new Uint32Array(this.pixels.data.buffer);
    }
    if (this.block === 1) {
      const n = Math.min(this.states.length, w * h);
      const { states, colors, words } = this;
      for (let i = 0; i < n; i++) words[i] = colors[states[i] ?? 0] ?? 0;
    } else for (let by = 0; by < h; by++) for (let bx = 0; bx < w; bx++) this.paintBlock(by * w + bx, bx, by);
    this.dirtyRows = [0, h - 1];
  }

  private paintBlock(at: number, bx: number, by: number) {
    const s = this.block === 1 ? (this.states[by * this.plane.cols + bx] ?? -1) : loudest(this.states, this.plane, this.block, bx, by, this.shown);
    if (s >= 0) this.words[at] = this.colors[s] ?? 0;
  }

  private draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint() {
    const ctx = this.canvas.getContext("2d");
    if (!ctx || !this.pixels) return;
    const { view, plane, ratio } = this;
    const scale = view.scale * ratio;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const x0 = Math.max(0, Math.floor(view.x));
    const y0 = Math.max(0, Math.floor(view.y));
    const x1 = Math.min(plane.cols, Math.ceil(view.x + this.size.width / view.scale));
    const y1 = Math.min(plane.rows, Math.ceil(view.y + this.size.height / view.scale));
    if (view.scale >= markScale) this.paintMarks(ctx, x0, y0, x1, y1, scale);
    else {
      const image = this.image.getContext("2d");
      if (!image) return;
      if (this.dirtyRows) {
        const [from, to] = this.dirtyRows;
        image.putImageData(this.pixels, 0, 0, 0, from, this.image.width, to - from + 1);
        this.dirtyRows = undefined;
      }
      const b = this.block;
      ctx.imageSmoothingEnabled = scale * b < 1;
      ctx.drawImage(this.image, x0 / b, y0 / b, (x1 - x0) / b, (y1 - y0) / b, (x0 - view.x) * scale, (y0 - view.y) * scale, (x1 - x0) * scale, (y1 - y0) * scale);
      if (view.scale >= 4) this.paintLines(ctx, x0, y0, x1, y1, scale);
    }
    if (this.cursor !== undefined && this.cursor < plane.count) {
      const cx = ((this.cursor % plane.cols) - view.x) * scale;
      const cy = (Math.floor(this.cursor / plane.cols) - view.y) * scale;
      const grow = Math.max(2, (8 * ratio - scale) / 2);
      ctx.lineWidth = 4 * ratio;
      ctx.strokeStyle = this.card;
      ctx.strokeRect(cx - grow, cy - grow, scale + 2 * grow, scale + 2 * grow);
      ctx.lineWidth = 2 * ratio;
      ctx.strokeStyle = this.ink;
      ctx.strokeRect(cx - grow, cy - grow, scale + 2 * grow, scale + 2 * grow);
    }
  }

  private paintMarks(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, scale: number) {
    const gap = Math.max(1, Math.round(scale * 0.12));
    const size = Math.max(1, Math.round(scale) - gap);
    if (this.tileSize !== size) {
      this.tileSize = size;
      this.tiles = taskStates.map((_, code) => {
        const tile = document.createElement("canvas");
        tile.width = tile.height = size;
        const t = tile.getContext("2d");
        if (t) paintTile(t, code, size, this.cssColors[code] ?? "#888888");
        return tile;
      });
    }
    for (let y = y0; y < y1; y++) {
      for (let x = x0; x < x1; x++) {
        const i = y * this.plane.cols + x;
        if (i >= this.plane.count) break;
        const code = this.states[i] ?? 0;
        const tile = this.tiles[code];
        if (!tile) continue;
        ctx.globalAlpha = this.shown && !this.shown.has(code) ? 0.12 : 1;
        ctx.drawImage(tile, Math.round((x - this.view.x) * scale), Math.round((y - this.view.y) * scale));
      }
    }
    ctx.globalAlpha = 1;
  }

  private paintLines(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, scale: number) {
    ctx.fillStyle = this.card;
    const w = Math.max(1, Math.round(this.ratio));
    for (let x = x0; x <= x1; x++) ctx.fillRect(Math.round((x - this.view.x) * scale) - w, 0, w, this.canvas.height);
    for (let y = y0; y <= y1; y++) ctx.fillRect(0, Math.round((y - this.view.y) * scale) - w, this.canvas.width, w);
  }
}
