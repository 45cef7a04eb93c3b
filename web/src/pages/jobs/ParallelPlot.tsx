import { MultiSelect, useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState, type PointerEvent } from "react";
import css from "./plot.module.css";
import { colorAt, correlation, distanceToLine, placesOf, pointOf, rangeAt, scaleOf, type Scale } from "./model/plot";
import { lessIsBetter, type Field, type Run } from "./model/results";
import { Ramp } from "./Ramp";
import type { Ranges } from "./search";
import { label, show, type Brush, type RangeChange } from "./tabs/Results";

const height = 380;
const top = 46;
const bottom = 22;
/** Pixels from an axis within which the pointer is on it. */
const reach = 18;
/** Lines that are drawn at most; the eye cannot follow more. */
const maxLines = 5_000;

/** One line for each run over one axis for each parameter and metric. Dragging along an axis keeps the runs in that range. */
export function ParallelPlot({ runs, kept, fields, colorBy, axes, onAxes, ranges, brush, onOpen }: {
  runs: readonly Run[];
  kept: readonly Run[];
  fields: readonly Field[];
  colorBy: Field | undefined;
  /** Keys of the fields that are axes; undefined is a choice of the plot. */
  axes: readonly string[] | undefined;
  onAxes: (keys: string[]) => void;
  ranges: Ranges;
  brush: Brush;
  onOpen: (r: Run) => void;
}) {
  const scheme = useComputedColorScheme("light");
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<Run>();
  const usable = useMemo(() => fields.filter((f) => f.varies && f.known >= 2 && f.key !== "about:task" && f.key !== "about:worker"), [fields]);
  const initial = useMemo(() => {
    const results = new Set(usable.filter((f) => f.source === "result").map((f) => f.name));
    return usable.filter((f) => f.source === "param" || f.source === "result" || (f.source === "metric" && !results.has(f.name))).slice(0, 10).map((f) => f.key);
  }, [usable]);
  const keys = (axes ?? initial).filter((k) => usable.some((f) => f.key === k));
  const list = keys.join("\n");
  const scales = useMemo(() => list.split("\n").flatMap((k) => usable.filter((f) => f.key === k).map((f) => scaleOf(f, runs))), [list, usable, runs]);
  const colors = useMemo(() => (colorBy ? scaleOf(colorBy, runs) : undefined), [colorBy, runs]);
  const inner = Math.max(width, scales.length * 84);
  const xs = useMemo(() => scales.map((_, i) => (scales.length === 1 ? inner / 2 : 54 + (i * (inner - 108)) / (scales.length - 1))), [scales, inner]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    const ctx = element?.getContext("2d");
    if (!element || !ctx || width === 0) return;
    const ratio = Math.min(3, devicePixelRatio || 1);
    element.width = inner * ratio;
    element.height = height * ratio;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(element);
    const value = (n: string) => style.getPropertyValue(n).trim();
    const [ink, dim, card, line] = [value("--mantine-color-text"), value("--mantine-color-dimmed"), value("--card"), value("--line")];
    const among = new Set(kept);
    const draw = (r: Run, color: string, alpha: number, w: number) => {
      ctx.strokeStyle = color;
      ctx.globalAlpha = alpha;
      ctx.lineWidth = w;
      ctx.beginPath();
      let pen = false;
      scales.forEach((s, i) => {
        const y = place(s, r);
        if (y === undefined) {
          pen = false;
          return;
        }
        if (pen) ctx.lineTo(xs[i] ?? 0, y);
        else ctx.moveTo(xs[i] ?? 0, y);
        pen = true;
      });
      ctx.stroke();
    };
    const color = (r: Run) => {
      const v = colors?.at(r.values.get(colors.field.key));
      return v === undefined ? dim : colorAt(v, scheme);
    };
    const shown = runs.length > maxLines ? runs.filter((_, i) => i % Math.ceil(runs.length / maxLines) === 0) : runs;
    if (kept.length < runs.length) for (const r of shown) if (!among.has(r)) draw(r, line, 0.5, 1);
    const alpha = kept.length > 1000 ? 0.25 : kept.length > 200 ? 0.45 : 0.75;
    for (const r of shown) if (among.has(r)) draw(r, color(r), alpha, 1.4);
    if (hover) draw(hover, ink, 1, 3);
    ctx.globalAlpha = 1;
    ctx.font = "12px system-ui, sans-serif";
    scales.forEach((s, i) => {
      const x = xs[i] ?? 0;
      ctx.strokeStyle = dim;
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, height - bottom);
      ctx.stroke();
      const range = ranges[s.field.key];
      if (range) {
        const [low, high] = placesOf(s, range);
        const y1 = top + (1 - high) * (height - top - bottom);
        const y0 = top + (1 - low) * (height - top - bottom);
        ctx.fillStyle = value("--mantine-primary-color-filled");
        ctx.globalAlpha = 0.3;
        ctx.fillRect(x - 8, y1, 16, Math.max(2, y0 - y1));
        ctx.globalAlpha = 1;
        ctx.strokeStyle = value("--mantine-primary-color-filled");
        ctx.strokeRect(x - 8, y1, 16, Math.max(2, y0 - y1));
      }
      ctx.textAlign = "center";
      ctx.fillStyle = ink;
      const title = fitText(ctx, label(s.field), inner / Math.max(1, scales.length) - 8);
      ctx.fillText(title, x, 16);
      const r = colorBy && s.field.numeric && s.field.key !== colorBy.key ? correlation(kept, s.field.key, colorBy.key) : undefined;
      ctx.fillStyle = dim;
      if (r !== undefined) ctx.fillText(`r ${r.toFixed(2)}`, x, 32);
      ctx.textAlign = "left";
      for (const t of s.ticks) {
        const y = top + (1 - t.at) * (height - top - bottom);
        ctx.fillStyle = dim;
        ctx.fillRect(x - 3, y, 6, 1);
        const text = fitText(ctx, t.label, 60);
        const w = ctx.measureText(text).width;
        ctx.globalAlpha = 0.8;
        ctx.fillStyle = card;
        ctx.fillRect(x + 5, y - 7, w + 4, 14);
        ctx.globalAlpha = 1;
        ctx.fillStyle = ink;
        ctx.fillText(text, x + 7, y + 4);
      }
    });
  }, [runs, kept, scales, xs, inner, width, ranges, hover, colors, colorBy, scheme]);

  const drag = useRef<{ axis: number; from: number; moved: boolean }>(undefined);
  const axisAt = (x: number) => {
    let best: number | undefined;
    xs.forEach((a, i) => {
      if (Math.abs(a - x) < reach && (best === undefined || Math.abs(a - x) < Math.abs((xs[best] ?? 0) - x))) best = i;
    });
    return best;
  };
  const share = (y: number) => Math.max(0, Math.min(1, 1 - (y - top) / (height - top - bottom)));
  const down = (e: PointerEvent<HTMLElement>) => {
    const { x, y } = pointOf(e);
    const axis = axisAt(x);
    if (axis === undefined) return;
    drag.current = { axis, from: share(y), moved: false };
    e.currentTarget.setPointerCapture(e.pointerId);
    e.preventDefault();
  };
  const near = (x: number, y: number): Run | undefined => {
    let best: Run | undefined;
    let least = 6;
    const i = xs.findIndex((a) => a >= x);
    const from = Math.max(0, i - 1);
    for (const r of kept.slice(0, maxLines)) {
      const d = distanceToLine(xs.slice(from, from + 2), scales.slice(from, from + 2).map((s) => place(s, r)), x, y);
      if (d < least) {
        least = d;
        best = r;
      }
    }
    return best;
  };
  /** The range from where the drag began to a place. */
  const dragged = (d: { axis: number; from: number }, to: number): RangeChange => {
    const scale = scales[d.axis];
    const range = scale && rangeAt(scale, Math.min(d.from, to), Math.max(d.from, to));
    return scale && range ? { [scale.field.key]: range } : {};
  };
  const move = (e: PointerEvent<HTMLElement>) => {
    const d = drag.current;
    const { x, y } = pointOf(e);
    if (!d) {
      setHover(near(x, y));
      return;
    }
    const to = share(y);
    if (Math.abs(to - d.from) > 0.01) d.moved = true;
    if (d.moved) brush.move(dragged(d, to));
  };
  const up = (e: PointerEvent<HTMLElement>) => {
    const d = drag.current;
    const { x, y } = pointOf(e);
    drag.current = undefined;
    if (d?.moved) brush.end(dragged(d, share(y)));
    else if (d) {
      const key = scales[d.axis]?.field.key;
      if (key) brush.end({ [key]: undefined });
    } else {
      const r = near(x, y);
      if (r) onOpen(r);
    }
  };
  const cancel = () => {
    drag.current = undefined;
    brush.cancel();
  };
  return (
    <>
      <MultiSelect size="xs" mb="xs" aria-label="Axes" placeholder="Axes" data={usable.map((f) => ({ value: f.key, label: f.source === "about" ? label(f) : `${label(f)} (${f.source === "param" ? "parameter" : f.source})` }))} value={keys} onChange={onAxes} searchable maxValues={14} />
      <div className={css.status} aria-live="polite">
        {hover ? `Task ${hover.id}: ${scales.map((s) => `${label(s.field)} ${show(s.field, hover)}`).join(", ")}` : "Drag along an axis to keep the runs in that range; a click on it removes the range. A click on a line opens the task."}
      </div>
      <div className={css.frame}>
        <div ref={host} className={css.scroll}>
          <div className={css.plot} style={{ width: inner, height, ...(hover && { cursor: "pointer" }) }} onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={cancel} onPointerLeave={() => setHover(undefined)}>
            <canvas
              ref={canvas}
              style={{ display: "block", width: inner, height }}
              role="img"
              aria-label={`Parallel coordinates of ${kept.length} runs over ${scales.map((s) => label(s.field)).join(", ")}; the table has the same values, and Ranges takes ranges as numbers`}
              data-testid="parallel"
            />
            {/* A finger that moves along an axis drags; elsewhere it scrolls. */}
            {xs.map((x, i) => (
              <span key={i} className={css.axis} style={{ left: x - reach, width: 2 * reach }} />
            ))}
          </div>
        </div>
        {colorBy && <Ramp field={colorBy} note={lessIsBetter(colorBy.name) ? "less is better" : undefined} />}
      </div>
    </>
  );
}

function place(s: Scale, r: Run): number | undefined {
  const v = s.at(r.values.get(s.field.key));
  return v === undefined ? undefined : top + (1 - v) * (height - top - bottom);
}

export function fitText(ctx: CanvasRenderingContext2D, text: string, width: number): string {
  if (ctx.measureText(text).width <= width) return text;
  let n = text.length - 1;
  while (n > 1 && ctx.measureText(`${text.slice(0, n)}…`).width > width) n--;
  return `${text.slice(0, n)}…`;
}
