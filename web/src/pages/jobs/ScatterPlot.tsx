import { Select, useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState, type PointerEvent } from "react";
import page from "./job.module.css";
import css from "./plot.module.css";
import { colorAt, correlation, nearest, rangeAt, scaleOf } from "./model/plot";
import type { Field, Run } from "./model/results";
import { fitText } from "./ParallelPlot";
import { Ramp } from "./Ramp";
import { label, show, type RangeChange } from "./tabs/Results";

const height = 420;
const pad = { left: 66, right: 18, top: 14, bottom: 44 };

/** One dot for each run. Dragging a rectangle keeps the runs in it. */
export function ScatterPlot({ runs, kept, fields, x, y, colorBy, best, onAxes, onBrush, onOpen }: {
  runs: readonly Run[];
  kept: readonly Run[];
  fields: readonly Field[];
  x: string | undefined;
  y: string | undefined;
  colorBy: Field | undefined;
  best: Field | undefined;
  onAxes: (x: string | undefined, y: string | undefined) => void;
  onBrush: (change: RangeChange) => void;
  onOpen: (r: Run) => void;
}) {
  const scheme = useComputedColorScheme("light");
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<number>();
  const [box, setBox] = useState<{ x0: number; y0: number; x1: number; y1: number }>();
  const usable = useMemo(() => fields.filter((f) => f.varies && f.known >= 2), [fields]);
  const fy = usable.find((f) => f.key === y) ?? best ?? usable[1];
  const fx = usable.find((f) => f.key === x) ?? usable.find((f) => f.source === "param" && f.numeric) ?? usable.find((f) => f.key !== fy?.key);
  const sx = useMemo(() => (fx ? scaleOf(fx, runs) : undefined), [fx, runs]);
  const sy = useMemo(() => (fy ? scaleOf(fy, runs) : undefined), [fy, runs]);
  const colors = useMemo(() => (colorBy ? scaleOf(colorBy, runs) : undefined), [colorBy, runs]);
  const w = Math.max(120, width);
  const points = useMemo(() => {
    const out = new Float64Array(kept.length * 2).fill(NaN);
    kept.forEach((r, i) => {
      const a = sx?.at(r.values.get(sx.field.key));
      const b = sy?.at(r.values.get(sy.field.key));
      if (a === undefined || b === undefined) return;
      out[i * 2] = pad.left + a * (w - pad.left - pad.right);
      out[i * 2 + 1] = pad.top + (1 - b) * (height - pad.top - pad.bottom);
    });
    return out;
  }, [kept, sx, sy, w]);

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
    if (!element || !ctx || width === 0 || !sx || !sy) return;
    const ratio = Math.min(3, devicePixelRatio || 1);
    element.width = w * ratio;
    element.height = height * ratio;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(element);
    const value = (n: string) => style.getPropertyValue(n).trim();
    const [ink, dim, line, card] = [value("--mantine-color-text"), value("--mantine-color-dimmed"), value("--line"), value("--card")];
    ctx.font = "12px system-ui, sans-serif";
    ctx.textAlign = "center";
    for (const t of sx.ticks) {
      const at = pad.left + t.at * (w - pad.left - pad.right);
      ctx.fillStyle = line;
      ctx.fillRect(at, pad.top, 1, height - pad.top - pad.bottom);
      ctx.fillStyle = dim;
      ctx.fillText(fitText(ctx, t.label, 80), at, height - pad.bottom + 16);
    }
    ctx.textAlign = "right";
    for (const t of sy.ticks) {
      const at = pad.top + (1 - t.at) * (height - pad.top - pad.bottom);
      ctx.fillStyle = line;
      ctx.fillRect(pad.left, at, w - pad.left - pad.right, 1);
      ctx.fillStyle = dim;
      ctx.fillText(fitText(ctx, t.label, pad.left - 10), pad.left - 6, at + 4);
    }
    ctx.fillStyle = ink;
    ctx.textAlign = "center";
    ctx.fillText(fitText(ctx, label(sx.field), w - 80), pad.left + (w - pad.left - pad.right) / 2, height - 8);
    ctx.save();
    ctx.translate(12, pad.top + (height - pad.top - pad.bottom) / 2);
    ctx.rotate(-Math.PI / 2);
    ctx.fillText(fitText(ctx, label(sy.field), height - 80), 0, 0);
    ctx.restore();
    const radius = kept.length > 5_000 ? 2 : kept.length > 800 ? 3 : 5;
    ctx.globalAlpha = kept.length > 2_000 ? 0.5 : 0.85;
    kept.forEach((r, i) => {
      const px = points[i * 2] ?? NaN;
      if (Number.isNaN(px)) return;
      const v = colors?.at(r.values.get(colors.field.key));
      ctx.fillStyle = v === undefined ? dim : colorAt(v, scheme);
      ctx.beginPath();
      ctx.arc(px, points[i * 2 + 1] ?? 0, radius, 0, 7);
      ctx.fill();
    });
    ctx.globalAlpha = 1;
    if (hover !== undefined) {
      ctx.strokeStyle = ink;
      ctx.fillStyle = card;
      ctx.lineWidth = 2.5;
      ctx.beginPath();
      ctx.arc(points[hover * 2] ?? 0, points[hover * 2 + 1] ?? 0, radius + 3, 0, 7);
      ctx.stroke();
    }
    if (box) {
      ctx.strokeStyle = value("--mantine-primary-color-filled");
      ctx.fillStyle = value("--mantine-primary-color-filled");
      ctx.lineWidth = 1.5;
      ctx.strokeRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
      ctx.globalAlpha = 0.12;
      ctx.fillRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
      ctx.globalAlpha = 1;
    }
  }, [kept, points, sx, sy, w, width, hover, box, colors, scheme]);

  if (!fx || !fy || !sx || !sy) return <p className={page.note}>Nothing varies between the runs yet.</p>;
  const r = correlation(kept, fx.key, fy.key);
  const shown = hover === undefined ? undefined : kept[hover];
  const options = usable.map((f) => ({ value: f.key, label: f.source === "about" ? label(f) : `${label(f)} (${f.source === "param" ? "parameter" : f.source})` }));
  const down = (e: PointerEvent<HTMLCanvasElement>) => {
    const { offsetX, offsetY } = e.nativeEvent;
    setBox({ x0: offsetX, y0: offsetY, x1: offsetX, y1: offsetY });
    if (e.pointerType === "mouse") e.currentTarget.setPointerCapture(e.pointerId);
  };
  const move = (e: PointerEvent<HTMLCanvasElement>) => {
    const { offsetX, offsetY } = e.nativeEvent;
    if (box) setBox({ ...box, x1: offsetX, y1: offsetY });
    else setHover(nearest(points, offsetX, offsetY, 14));
  };
  const up = (e: PointerEvent<HTMLCanvasElement>) => {
    const b = box;
    setBox(undefined);
    if (!b) return;
    if (Math.abs(b.x1 - b.x0) < 5 && Math.abs(b.y1 - b.y0) < 5) {
      const i = nearest(points, e.nativeEvent.offsetX, e.nativeEvent.offsetY, 14);
      const run = i === undefined ? undefined : kept[i];
      if (run) onOpen(run);
      return;
    }
    const inX = (p: number) => Math.max(0, Math.min(1, (p - pad.left) / (w - pad.left - pad.right)));
    const inY = (p: number) => Math.max(0, Math.min(1, 1 - (p - pad.top) / (height - pad.top - pad.bottom)));
    const across = rangeAt(sx, inX(Math.min(b.x0, b.x1)), inX(Math.max(b.x0, b.x1)));
    const along = rangeAt(sy, inY(Math.max(b.y0, b.y1)), inY(Math.min(b.y0, b.y1)));
    onBrush({ ...(across && { [fx.key]: across }), ...(along && { [fy.key]: along }) });
  };
  return (
    <>
      <div className={page.toolbar}>
        <Select size="xs" label="X" data={options} value={fx.key} onChange={(v) => onAxes(v ?? undefined, fy.key)} allowDeselect={false} searchable w={190} />
        <Select size="xs" label="Y" data={options} value={fy.key} onChange={(v) => onAxes(fx.key, v ?? undefined)} allowDeselect={false} searchable w={190} />
      </div>
      <div className={css.status} aria-live="polite">
        {shown ? `Task ${shown.id}: ${fields.filter((f) => f.source !== "about").map((f) => `${label(f)} ${show(f, shown)}`).join(", ")}` : `Drag a rectangle to keep the runs in it; a click opens the task.${r === undefined ? "" : ` Correlation ${r.toFixed(2)}.`}`}
      </div>
      <div className={css.frame}>
        <div ref={host}>
          <canvas ref={canvas} className={css.canvas} style={{ width: w, height, ...(shown && { cursor: "pointer" }) }} role="img" aria-label={`${label(fy)} over ${label(fx)} of ${kept.length} runs; the table has the same values, and Ranges takes ranges as numbers`} data-testid="scatter" onPointerDown={down} onPointerMove={move} onPointerUp={up} onPointerCancel={() => setBox(undefined)} onPointerLeave={() => setHover(undefined)} />
        </div>
        {colorBy && <Ramp field={colorBy} />}
      </div>
    </>
  );
}
