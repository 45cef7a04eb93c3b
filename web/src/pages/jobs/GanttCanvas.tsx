import { useComputedColorScheme } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useEffect, useImperativeHandle, useRef, useState, type KeyboardEvent, type PointerEvent, type Ref } from "react";
import { duration } from "@/ui/format";
import { stateColor } from "@/ui/StateBadge";
import css from "./gantt.module.css";
import { firstFrom, pan, ticks, zoom, type Bar, type Lane, type Span } from "./model/gantt";

export interface GanttHandle {
  zoom: (factor: number) => void;
  all: () => void;
}

const rowHeight = 22;

/** Bars over time, one row a lane. Only the rows and bars in view are drawn. */
export function GanttCanvas({ ref, lanes, all, now, initial, onView, onHover, onOpen, label }: {
  ref: Ref<GanttHandle>;
  lanes: readonly Lane[];
  all: Span;
  now: number;
  /** What is seen at first; undefined is all. */
  initial: Span | undefined;
  /** Is called with what is seen when it rests. */
  onView: (view: Span | undefined) => void;
  onHover: (bar: Bar | undefined) => void;
  onOpen: (bar: Bar) => void;
  label: string;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light");
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [top, setTop] = useState(0);
  /** What is seen; undefined is all, also when it grows. */
  const [view, setView] = useState(initial);
  const [resting] = useDebouncedValue(view, 300);
  const report = useRef(onView);
  useEffect(() => {
    report.current = onView;
  });
  const reported = useRef(initial);
  useEffect(() => {
    if (resting === reported.current) return;
    reported.current = resting;
    report.current(resting);
  }, [resting]);
  const [cursor, setCursor] = useState<{ lane: number; bar: number }>();
  const [over, setOver] = useState(false);
  // A link may show what is not loaded yet.
  const span = view ? pan(view, all, 0) : all;
  const names = Math.min(190, Math.max(70, size.width * 0.2));
  const height = lanes.length * rowHeight;
  const selected = cursor && lanes[cursor.lane]?.bars[cursor.bar];

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const ctx = prepare(canvas.current, size.width, Math.min(size.height, Math.max(height, 1)));
    const axisCtx = prepare(axis.current, size.width, 26);
    if (!ctx || !axisCtx || size.width === 0) return;
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const paint: Paint = { ctx, span, all, names, width: size.width, now, ink: color("--mantine-color-text"), dim: color("--mantine-color-dimmed"), line: color("--line"), card: color("--card"), of: (b) => color(stateColor(b.state).slice(4, -1)) };
    drawAxis(axisCtx, paint);
    drawLanes(paint, lanes, top, Math.min(size.height, height), selected);
  }, [lanes, span, all, now, size, top, scheme, names, height, selected]);

  useImperativeHandle(ref, () => ({
    zoom: (factor) => setView(zoom(span, all, factor, 0.5)),
    all: () => setView(undefined),
  }));
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const wheel = (e: WheelEvent) => {
      const inner = Math.max(1, size.width - names);
      if (e.ctrlKey || e.metaKey) {
        e.preventDefault();
        setView((v) => zoom(v ?? all, all, Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0025)), Math.max(0, Math.min(1, (e.offsetX - names) / inner))));
      } else if (e.deltaX !== 0) {
        e.preventDefault();
        setView((v) => pan(v ?? all, all, (e.deltaX / inner) * ((v ?? all).to - (v ?? all).from)));
      }
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [all, size.width, names]);

  const find = (x: number, y: number): Bar | undefined => {
    const lane = lanes[Math.floor((y + top) / rowHeight)];
    if (!lane || x < names) return undefined;
    const perPixel = (span.to - span.from) / Math.max(1, size.width - names);
    const at = span.from + (x - names) * perPixel;
    for (let i = firstFrom(lane.bars, at - 3 * perPixel, now); i < lane.bars.length; i++) {
      const b = lane.bars[i];
      if (!b || b.start > at + 3 * perPixel) return undefined;
      return b;
    }
    return undefined;
  };
  const drag = useRef<{ x: number; moved: number }>(undefined);
  const move = (e: PointerEvent<HTMLCanvasElement>) => {
    const { offsetX, offsetY } = e.nativeEvent;
    const d = drag.current;
    if (d) {
      d.moved += Math.abs(offsetX - d.x);
      if (d.moved > 4) setView(pan(span, all, ((d.x - offsetX) / Math.max(1, size.width - names)) * (span.to - span.from)));
      d.x = offsetX;
      return;
    }
    const bar = find(offsetX, offsetY);
    setOver(bar !== undefined);
    onHover(bar);
  };
  const up = (e: PointerEvent<HTMLCanvasElement>) => {
    const d = drag.current;
    drag.current = undefined;
    const bar = find(e.nativeEvent.offsetX, e.nativeEvent.offsetY);
    if (d && d.moved <= 4 && e.type === "pointerup" && bar) onOpen(bar);
  };
  const go = (lane: number, bar: number) => {
    const row = lanes[lane];
    const b = row?.bars[bar];
    if (!row || !b) return;
    setCursor({ lane, bar });
    onHover(b);
    const y = lane * rowHeight;
    const element = scroller.current;
    if (element && (y < element.scrollTop || y + rowHeight > element.scrollTop + element.clientHeight)) element.scrollTop = y - element.clientHeight / 2;
    if (view && (b.start < view.from || b.start > view.to)) setView(pan(view, all, b.start - (view.from + view.to) / 2));
  };
  const key = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const { lane = 0, bar = -1 } = cursor ?? {};
    const near = (to: number) => {
      const bars = lanes[to]?.bars ?? [];
      const at = selected?.start ?? all.from;
      return Math.max(0, Math.min(bars.length - 1, firstFrom(bars, at, now)));
    };
    if (e.key === "ArrowRight") go(lane, bar + 1);
    else if (e.key === "ArrowLeft") go(lane, Math.max(0, bar - 1));
    else if (e.key === "ArrowDown") go(Math.min(lanes.length - 1, lane + 1), near(Math.min(lanes.length - 1, lane + 1)));
    else if (e.key === "ArrowUp") go(Math.max(0, lane - 1), near(Math.max(0, lane - 1)));
    else if (e.key === "Enter" && selected) onOpen(selected);
    else if (e.key === "+" || e.key === "=") setView(zoom(span, all, 1.6, 0.5));
    else if (e.key === "-") setView(zoom(span, all, 1 / 1.6, 0.5));
    else if (e.key === "0") setView(undefined);
    else return;
    e.preventDefault();
  };
  return (
    <div className={css.frame}>
      <canvas ref={axis} className={css.axis} aria-hidden />
      <div ref={scroller} className={css.scroller} style={{ height: Math.max(60, height) }} onScroll={(e) => setTop(e.currentTarget.scrollTop)}>
        <div style={{ height: Math.max(60, height) }}>
          {/* Its bars cannot be elements: the canvas takes the keys, and the page says where the cursor is. */}
          {/* eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role */}
          <canvas role="application"
            ref={canvas}
            className={css.canvas}
            data-over={over || undefined}
            data-testid="timeline"
            tabIndex={0}
            aria-label={label}
            aria-roledescription="timeline"
            onPointerDown={(e) => {
              drag.current = { x: e.nativeEvent.offsetX, moved: 0 };
              if (e.pointerType === "mouse") e.currentTarget.setPointerCapture(e.pointerId);
            }}
            onPointerMove={move}
            onPointerUp={up}
            onPointerCancel={up}
            onPointerLeave={() => {
              setOver(false);
              if (!drag.current) onHover(selected);
            }}
            onKeyDown={key}
          />
        </div>
      </div>
    </div>
  );
}

function prepare(element: HTMLCanvasElement | null, width: number, height: number): CanvasRenderingContext2D | null {
  if (!element) return null;
  const ratio = Math.min(3, devicePixelRatio || 1);
  const w = Math.round(width * ratio);
  const h = Math.round(height * ratio);
  if (element.width !== w || element.height !== h) {
    element.width = w;
    element.height = h;
    element.style.height = `${height}px`;
  }
  const ctx = element.getContext("2d");
  ctx?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return ctx;
}

interface Paint {
  ctx: CanvasRenderingContext2D;
  span: Span;
  all: Span;
  names: number;
  width: number;
  now: number;
  ink: string;
  dim: string;
  line: string;
  card: string;
  of: (b: Bar) => string;
}

const font = "12px system-ui, sans-serif";
const x = (p: Paint, t: number) => p.names + ((t - p.span.from) / (p.span.to - p.span.from)) * (p.width - p.names);

function drawAxis(ctx: CanvasRenderingContext2D, p: Paint) {
  ctx.clearRect(0, 0, p.width, 26);
  ctx.font = font;
  ctx.fillStyle = p.dim;
  ctx.textBaseline = "middle";
  for (const t of ticks(p.span, p.all.from, Math.max(2, (p.width - p.names) / 110))) {
    const at = x(p, p.all.from + t);
    const text = t === 0 ? "0" : `+${duration(t / 1000)}`;
    const w = ctx.measureText(text).width;
    ctx.fillRect(at, 20, 1, 6);
    ctx.fillText(text, Math.min(p.width - w - 4, Math.max(p.names, at - w / 2)), 11);
  }
}

function drawLanes(p: Paint, lanes: readonly Lane[], top: number, height: number, selected: Bar | undefined) {
  const { ctx } = p;
  ctx.clearRect(0, 0, p.width, height);
  ctx.font = font;
  ctx.textBaseline = "middle";
  ctx.fillStyle = p.line;
  for (const t of ticks(p.span, p.all.from, Math.max(2, (p.width - p.names) / 110))) ctx.fillRect(x(p, p.all.from + t), 0, 1, height);
  const first = Math.floor(top / rowHeight);
  const last = Math.min(lanes.length - 1, Math.ceil((top + height) / rowHeight));
  for (let i = first; i <= last; i++) {
    const lane = lanes[i];
    if (!lane) continue;
    const y = i * rowHeight - top;
    if (!lane.more) {
      ctx.fillStyle = p.line;
      ctx.globalAlpha = 0.6;
      ctx.fillRect(0, y, p.width, 1);
      ctx.globalAlpha = 1;
      ctx.fillStyle = p.ink;
      ctx.fillText(shorten(ctx, lane.label, p.names - 18), 10, y + rowHeight / 2);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(p.names, y, p.width - p.names, rowHeight);
    ctx.clip();
    for (let k = firstFrom(lane.bars, p.span.from, p.now); k < lane.bars.length; k++) {
      const b = lane.bars[k];
      // Bars are in the order of their starts; a wait begins before, but only shows where its bar is near.
      if (!b || (b.start > p.span.to && (b.queued ?? b.start) > p.span.to)) break;
      drawBar(p, b, y, b === selected, (lane.bars[k - 1]?.end ?? -Infinity));
    }
    ctx.restore();
  }
}

function drawBar(p: Paint, b: Bar, y: number, selected: boolean, before: number) {
  const { ctx } = p;
  const from = x(p, b.start);
  const to = Math.max(from + 2, x(p, b.end ?? p.now));
  if (b.queued !== undefined && b.queued < b.start) {
    const wait = x(p, Math.max(b.queued, before));
    if (from - wait > 3) {
      ctx.strokeStyle = p.dim;
      ctx.globalAlpha = 0.6;
      ctx.setLineDash([2, 3]);
      ctx.lineWidth = 1.5;
      ctx.beginPath();
      ctx.moveTo(wait, y + rowHeight / 2);
      ctx.lineTo(from - 1, y + rowHeight / 2);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.globalAlpha = 1;
    }
  }
  const h = rowHeight - 6;
  ctx.fillStyle = p.of(b);
  ctx.globalAlpha = b.state === "succeeded" ? 0.7 : b.state === "running" ? 0.85 : 1;
  ctx.beginPath();
  ctx.roundRect(from, y + 3, Math.max(2, to - from - 1), h, Math.min(3, (to - from) / 3));
  ctx.fill();
  ctx.globalAlpha = 1;
  if (b.retry) {
    ctx.fillStyle = p.ink;
    ctx.fillRect(from, y + 3, Math.min(4, to - from), h);
  }
  const bad = b.state === "failed" || b.state === "timed_out" || b.state === "lost" || b.state === "rejected";
  if (bad && to - from > 12) {
    const c = (from + to) / 2;
    const m = y + rowHeight / 2;
    ctx.strokeStyle = p.card;
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(c - 3.5, m - 3.5);
    ctx.lineTo(c + 3.5, m + 3.5);
    ctx.moveTo(c + 3.5, m - 3.5);
    ctx.lineTo(c - 3.5, m + 3.5);
    ctx.stroke();
  } else if (to - from > 44) {
    ctx.fillStyle = p.card;
    ctx.fillText(shorten(ctx, b.task, to - from - 12), from + 7, y + rowHeight / 2 + 0.5);
  }
  if (selected) {
    ctx.strokeStyle = p.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(from - 1, y + 2, to - from + 1, h + 2);
  }
}

function shorten(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  let n = Math.min(text.length, Math.floor(width / 5));
  while (n > 1 && ctx.measureText(`${text.slice(0, n)}…`).width > width) n--;
  return n > 1 ? `${text.slice(0, n)}…` : "";
}
