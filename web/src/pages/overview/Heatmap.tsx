import { SegmentedControl, useComputedColorScheme } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import type { OverviewGPU } from "@/api/types";
import { bytesOf, none, percent, plural, watts } from "@/ui/format";
import { cellAt, describe, layout, measures, ordered, shaded, summarize, type Measure } from "./heat";
import css from "./Heatmap.module.css";

const maxHeight = 264;

/** One cell for each device: how busy it is, by colour; what is wrong with it, by a cross. */
export function Heatmap({ gpus, measure, onMeasure }: { gpus: readonly OverviewGPU[]; measure: Measure; onMeasure: (m: Measure) => void }) {
  const navigate = useNavigate();
  const scheme = useComputedColorScheme("light");
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [cell, setCell] = useState(-1);
  const [said, setSaid] = useState("");

  const cells = useMemo(() => ordered(gpus), [gpus]);
  const maxPower = useMemo(() => cells.reduce((most, g) => Math.max(most, g.power ?? 0), 0), [cells]);
  const grid = useMemo(() => layout(cells.length, width, maxHeight), [cells.length, width]);

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
    const ratio = devicePixelRatio;
    element.width = width * ratio;
    element.height = Math.max(1, grid.rows * grid.pitch) * ratio;
    ctx.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const css = (name: string) => style.getPropertyValue(name).trim();
    const [cold, hot, bad, line] = [css("--line"), css("--chart-1"), css("--state-failed"), css("--mantine-color-dimmed")];
    const size = grid.pitch - grid.gap;
    const x = (i: number) => (i % grid.columns) * grid.pitch;
    const y = (i: number) => Math.floor(i / grid.columns) * grid.pitch;
    // Cells of one shade are filled together: a change of the style costs more than a rectangle.
    const { shades, unknown } = shaded(cells, measure, maxPower);
    shades.forEach((shade, n) => {
      ctx.fillStyle = n === 0 ? cold : `color-mix(in srgb, ${hot} ${6 + (94 * n) / (shades.length - 1)}%, ${cold})`;
      for (const i of shade) ctx.fillRect(x(i), y(i), size, size);
    });
    ctx.strokeStyle = line;
    ctx.lineWidth = 1;
    for (const i of unknown) ctx.strokeRect(x(i) + 0.5, y(i) + 0.5, size - 1, size - 1);
    ctx.strokeStyle = bad;
    ctx.lineWidth = grid.pitch >= 10 ? 2 : 1;
    cells.forEach((g, i) => {
      if (!g.quarantined) return;
      const [left, top] = [x(i), y(i)];
      ctx.strokeRect(left + 1, top + 1, size - 2, size - 2);
      ctx.beginPath();
      ctx.moveTo(left + 1, top + 1);
      ctx.lineTo(left + size - 1, top + size - 1);
      ctx.moveTo(left + size - 1, top + 1);
      ctx.lineTo(left + 1, top + size - 1);
      ctx.stroke();
    });
  }, [cells, grid, width, measure, maxPower, scheme]);

  const show = (i: number, say: boolean) => {
    setCell(i);
    const g = cells[i];
    if (say && g) setSaid(describe(g));
  };
  const open = (i: number) => {
    const g = cells[i];
    if (g) void navigate({ to: "/workers/$worker", params: { worker: g.worker } });
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: grid.columns, ArrowUp: -grid.columns, Home: -cells.length, End: cells.length }[e.key];
    if (step !== undefined) show(Math.min(cells.length - 1, Math.max(0, (cell < 0 ? -Math.sign(step) : cell) + step)), true);
    else if (e.key === "Enter" && cell >= 0) open(cell);
    else if (e.key === "Escape") setCell(-1);
    else return;
    e.preventDefault();
  };
  const at = cells[cell];
  const left = (cell % grid.columns) * grid.pitch;
  const top = Math.floor(cell / grid.columns) * grid.pitch + grid.pitch + 4;
  return (
    <div>
      <div className={css.head}>
        <SegmentedControl size="xs" value={measure} onChange={onMeasure} data={measures.map((m) => ({ value: m, label: m === "memory" ? "VRAM" : `${m.slice(0, 1).toUpperCase()}${m.slice(1)}` }))} aria-label="What the cells show" />
        <Legend measure={measure} maxPower={maxPower} quarantined={cells.some((g) => g.quarantined)} />
      </div>
      <div ref={host} className={css.host}>
        {/* The arrow keys move over the cells, Enter opens the worker; what a cell says is said below. */}
        {/* eslint-disable jsx-a11y/no-interactive-element-to-noninteractive-role */}
        <canvas
          ref={canvas}
          className={css.canvas}
          style={{ width, height: grid.rows * grid.pitch }}
          tabIndex={0}
          role="application"
          aria-roledescription="heat map"
          aria-label={`${summarize(cells)}. Arrow keys move over the devices, Enter opens the worker.`}
          onKeyDown={onKeyDown}
          onBlur={() => setCell(-1)}
          onMouseMove={(e) => show(cellAt(grid, cells.length, e.nativeEvent.offsetX, e.nativeEvent.offsetY), false)}
          onMouseLeave={() => setCell(-1)}
          onClick={(e) => open(cellAt(grid, cells.length, e.nativeEvent.offsetX, e.nativeEvent.offsetY))}
        />
        {/* eslint-enable jsx-a11y/no-interactive-element-to-noninteractive-role */}
        <span className="hidden-visually" aria-live="polite">
          {said}
        </span>
        {at && <div className={css.cursor} style={{ left, top: top - grid.pitch - 4, width: grid.pitch - grid.gap, height: grid.pitch - grid.gap }} aria-hidden />}
        {at && (
          <div className={css.tip} style={{ top, ...(left > width / 2 ? { right: Math.max(0, width - left - grid.pitch) } : { left }) }} aria-hidden>
            <b>
              {at.worker_name} · GPU {at.index}
            </b>
            <span className="dim">{at.name}</span>
            <span>{percent(at.utilization)} busy</span>
            <span>{bytesOf(at.memory_used, at.memory)} VRAM</span>
            <span>
              {at.temperature === undefined ? none : `${Math.round(at.temperature)} °C`} · {watts(at.power)} · {plural(at.tasks, "task")}
            </span>
            {at.quarantined && <span style={{ color: "var(--state-failed)" }}>Quarantined: {at.quarantined}</span>}
          </div>
        )}
      </div>
    </div>
  );
}

function Legend({ measure, maxPower, quarantined }: { measure: Measure; maxPower: number; quarantined: boolean }) {
  const ends = measure === "temperature" ? ["30 °C", "90 °C"] : measure === "power" ? ["0", maxPower > 0 ? watts(maxPower) : none] : ["0%", "100%"];
  return (
    <span className={css.legend}>
      {ends[0]}
      <span className={css.ramp} aria-hidden />
      {ends[1]}
      {quarantined && (
        <>
          <svg width="12" height="12" aria-hidden>
            <path d="M1 1h10v10h-10zM1 1l10 10M11 1l-10 10" stroke="var(--state-failed)" strokeWidth="1.5" fill="none" />
          </svg>
          quarantined
        </>
      )}
    </span>
  );
}
