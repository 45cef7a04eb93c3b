import { ActionIcon, Table, Tooltip, useComputedColorScheme } from "@mantine/core";
import { ChartLine, Table2 } from "lucide-react";
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { bytes, dateTime, digits, none, timeOfDay } from "./format";
import css from "./TimeChart.module.css";

type Values = readonly (number | null | undefined)[];

export interface ChartSeries {
  readonly label: string;
  readonly values: Values;
  /** A CSS colour; default: the next of --chart-1 to --chart-8. */
  readonly color?: string;
  /** Fills the area under the line. */
  readonly fill?: boolean;
  readonly dash?: boolean;
  /** Draws steps rather than slopes: for capacities. */
  readonly step?: boolean;
}

export interface ChartMarker {
  /** Seconds since 1970. */
  readonly at: number;
  readonly label: string;
  readonly color?: string;
  /** Draws a mark at the bottom instead of a line with its label: for numerous events. */
  readonly tick?: boolean;
}

export interface TimeChartProps {
  /** What it shows: the heading, and the beginning of what a screen reader reads. */
  readonly title: string;
  /** Seconds since 1970, ascending; each series has as many values. */
  readonly times: readonly number[];
  readonly series: readonly ChartSeries[];
  readonly markers?: readonly ChartMarker[];
  /** Writes a value; default: three significant digits. With bytes the axis counts in powers of two. */
  readonly format?: (value: number) => string;
  readonly height?: number;
  /** Charts of one key share their cursor and their zoom. */
  readonly sync?: string;
  /** The range of the values; default: from 0 to the largest. */
  readonly min?: number | undefined;
  readonly max?: number | undefined;
  readonly log?: boolean;
  /** Seconds that the axis spans; default: those of times. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

// Distances of ticks in bytes: 1, 2, 4 … KiB, MiB, GiB and so on.
const powers = Array.from({ length: 60 }, (_, i) => 2 ** i);

const noMarkers: readonly ChartMarker[] = [];

function resolve(color: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(color)?.[1];
  return name ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888" : color;
}

export const colorOf = (s: ChartSeries, i: number) => s.color ?? `var(--chart-${(i % 8) + 1})`;

export default function TimeChartCanvas({ title, times, series, markers = noMarkers, format = digits, height = 180, sync, min, max, log = false, from, to }: TimeChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // Dragging zooms, a double click shows all again; new values do not undo it.
  const zoomed = useRef(false);
  const scheme = useComputedColorScheme("light");
  const [table, setTable] = useState(false);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState<number | null>(null);

  // The plot is made again when its shape changes; new values only replace its data.
  const shape = JSON.stringify([series.map((s, i) => [s.label, colorOf(s, i), s.fill, s.dash, s.step, hidden.has(s.label)]), scheme, height, sync, min, max, log, format === bytes, from === undefined, table]);
  const values = useMemo(() => [times, ...series.map((s) => s.values)] as unknown as uPlot.AlignedData, [times, series]);
  const latest = useRef({ values, markers, format, from, to });
  useEffect(() => {
    latest.current = { values, markers, format, from, to };
  });

  useEffect(() => {
    const element = host.current;
    if (!element || table) return;
    const line = resolve("var(--line)");
    const ink = resolve("var(--mantine-color-dimmed)");
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const chart = new uPlot(
      {
        width: Math.max(120, element.clientWidth),
        height,
        padding: [8, 28, 0, 0], // a time at the right end has room for its half
        legend: { show: false },
        ...(sync && { cursor: { sync: { key: sync, setSeries: false } } }),
        scales: {
          x: { time: true, ...(latest.current.from !== undefined && { range: (u, lo, hi) => wholeOr(u, lo, hi, latest.current) }) },
          // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- the enum has no value at run time
          y: log ? { distr: 3 } : { range: (_, lo, hi) => bounds(lo, hi, min, max) },
        },
        axes: [
          { stroke: ink, font, grid: { show: false }, ticks: { stroke: line, size: 4 }, size: 28, values: (_, at) => at.map(axisTime(at)) },
          { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: (_, labels) => 14 + 6.2 * Math.max(sync ? 7 : 2, ...(labels ?? []).map((l) => l?.length ?? 0)), values: (_, at) => at.map((v) => (v === null ? "" : latest.current.format(v))), space: 34, ...(format === bytes && { incrs: powers }) },
        ],
        series: [
          {},
          ...series.map((s, i) => {
            const color = resolve(colorOf(s, i));
            return {
              label: s.label,
              show: !hidden.has(s.label),
              stroke: color,
              width: 1.5,
              // A value without neighbours has no line.
              points: { show: false, size: 4, filter: (u, of) => alone((u.data[of] ?? []) as Values) },
              ...(s.fill && { fill: `color-mix(in srgb, ${color} 14%, transparent)` }),
              ...(s.dash && { dash: [5, 4] }),
              ...(s.step && uPlot.paths.stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
            } satisfies uPlot.Series;
          }),
        ],
        hooks: {
          setCursor: [(u) => setCursor(u.cursor.idx ?? null)],
          // Charts of one key zoom together: each sees for itself whether it shows less than all.
          setScale: [
            (u, key) => {
              const { min: lo, max: hi } = u.scales["x"] ?? {};
              if (key !== "x" || typeof lo !== "number" || typeof hi !== "number") return;
              const all = u.data[0];
              const bit = (hi - lo) / 1000;
              zoomed.current = lo > (latest.current.from ?? all[0] ?? lo) + bit || hi < (latest.current.to ?? all[all.length - 1] ?? hi) - bit;
            },
          ],
          draw: [(u) => drawMarkers(u, latest.current.markers)],
        },
      },
      latest.current.values,
      element,
    );
    plot.current = chart;
    zoomed.current = false;
    const observer = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width > 0 && Math.abs(width - chart.width) > 1) chart.setSize({ width, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- shape holds all of it
  }, [shape]);

  useEffect(() => {
    const chart = plot.current;
    if (!chart) return;
    chart.setData(values, !zoomed.current);
  }, [values, markers, from, to]);

  const at = cursor !== null ? times[cursor] : undefined;
  const shown = cursor !== null && at !== undefined ? cursor : times.length - 1;
  const toggle = (label: string) => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  return (
    <figure className={css.figure} aria-label={summary(title, series, times, format)}>
      <figcaption className={css.head}>
        <span className={css.title}>{title}</span>
        <span className={css.at}>{at !== undefined ? cursorTime(at, times) : ""}</span>
        <Tooltip label={table ? "Show as a chart" : "Show as a table"}>
          <ActionIcon size="sm" onClick={() => setTable(!table)} aria-label={table ? `Show ${title} as a chart` : `Show ${title} as a table`}>
            {table ? <ChartLine size={15} aria-hidden /> : <Table2 size={15} aria-hidden />}
          </ActionIcon>
        </Tooltip>
      </figcaption>
      {table ? <Values times={times} series={series} markers={markers} format={format} height={height} title={title} /> : <div ref={host} style={{ height }} aria-hidden />}
      {!table && (
        <div className={css.legend}>
          {series.map((s, i) => {
            const v = cursor === null ? newest(s.values, shown) : s.values[shown];
            return (
              <button key={s.label} type="button" className={css.key} aria-pressed={!hidden.has(s.label)} onClick={() => toggle(s.label)} title={hidden.has(s.label) ? `Show ${s.label}` : `Hide ${s.label}`}>
                <span className={css.swatch} data-dash={s.dash || undefined} style={{ "--swatch": colorOf(s, i) }} aria-hidden />
                <span className="truncate">{s.label}</span>
                <b>{typeof v === "number" ? format(v) : none}</b>
              </button>
            );
          })}
        </div>
      )}
    </figure>
  );
}

// uPlot asks for the range of all of its data with its ends, and of a zoom with others, which are kept.
function wholeOr(u: uPlot, lo: number | null, hi: number | null, axis: { from: number | undefined; to: number | undefined }): uPlot.Range.MinMax {
  const [times] = u.data;
  const all = lo === null || hi === null || (lo === times[0] && hi === times[times.length - 1]);
  return all ? [axis.from ?? lo, axis.to ?? hi] : [lo, hi];
}

/** The indexes of values between unknown ones (null); undefined is no value at all, and no gap. */
export function alone(values: Values): number[] {
  const found: number[] = [];
  let before: number | null = null; // the value before, if there is one
  let candidate = -1; // what is alone unless a value follows
  values.forEach((v, i) => {
    if (v === undefined) return;
    if (v === null && candidate >= 0) found.push(candidate);
    candidate = v !== null && before === null ? i : -1;
    before = v;
  });
  if (candidate >= 0) found.push(candidate);
  return found;
}

function bounds(lo: number | null, hi: number | null, min: number | undefined, max: number | undefined): [number, number] {
  const bottom = min ?? Math.min(0, lo ?? 0);
  const top = max ?? (hi === null || hi <= bottom ? bottom + 1 : hi + (hi - bottom) * 0.08);
  return [bottom, top];
}

/** Writes the time at the cursor, with its day in a chart that spans more than one. */
export function cursorTime(at: number, times: readonly number[]): string {
  return (times[times.length - 1] ?? at) - (times[0] ?? at) > 86_400 ? dateTime(at * 1000) : timeOfDay(at * 1000);
}

/** Writes ticks as the clock's time, as exactly as their distance needs, and as days where they are days apart or span more than two. */
export function axisTime(ticks: readonly number[]): (at: number) => string {
  const step = (ticks[1] ?? 0) - (ticks[0] ?? 0);
  const options: Intl.DateTimeFormatOptions =
    step >= 86_400 || (ticks[ticks.length - 1] ?? 0) - (ticks[0] ?? 0) > 2 * 86_400
      ? { day: "numeric", month: "short" }
      : step >= 60
        ? { hour: "2-digit", minute: "2-digit" }
        : step >= 1 || ticks.length < 2
          ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
          : { minute: "2-digit", second: "2-digit", fractionalSecondDigits: step >= 0.1 ? 1 : 3 };
  const writer = new Intl.DateTimeFormat("en-GB", options);
  return (at) => writer.format(new Date(at * 1000));
}

function drawMarkers(u: uPlot, markers: readonly ChartMarker[]) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textAlign = "left"; // the axes leave theirs
  ctx.textBaseline = "alphabetic";
  let free = -Infinity;
  for (const m of markers) {
    const x = Math.round(u.valToPos(m.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = resolve(m.color ?? "var(--mantine-color-dimmed)");
    if (m.tick) {
      const bottom = bbox.top + bbox.height;
      const half = 4 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x, bottom - 2 * half);
      ctx.lineTo(x - half, bottom);
      ctx.lineTo(x + half, bottom);
      ctx.fill();
      continue;
    }
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    if (x > free) {
      ctx.fillText(m.label, x + 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
      free = x + ctx.measureText(m.label).width + 12 * devicePixelRatio;
    }
  }
  ctx.restore();
}

// The newest points of a live chart may not be known yet: one of the last three is still the present.
function newest(values: ChartSeries["values"], last: number): number | null | undefined {
  for (let i = last; i >= 0 && i > last - 3; i--) if (typeof values[i] === "number") return values[i];
  return undefined;
}

function summary(title: string, series: readonly ChartSeries[], times: readonly number[], format: (v: number) => string): string {
  if (times.length === 0) return `${title}: no values yet`;
  const parts = series.map((s) => {
    let last: number | undefined;
    let lo = Infinity;
    let hi = -Infinity;
    for (const v of s.values) {
      if (typeof v !== "number") continue;
      last = v;
      lo = Math.min(lo, v);
      hi = Math.max(hi, v);
    }
    return last === undefined ? `${s.label} unknown` : `${s.label} ${format(last)}, between ${format(lo)} and ${format(hi)}`;
  });
  return `${title}: ${parts.join("; ")}`;
}

// At most 200 rows of values, evenly chosen, and the markers between them, newest first.
function Values({ times, series, markers, format, height, title }: { times: readonly number[]; series: readonly ChartSeries[]; markers: readonly ChartMarker[]; format: (v: number) => string; height: number; title: string }) {
  const every = Math.max(1, Math.ceil(times.length / 200));
  const rows: { at: number; row: number | ChartMarker }[] = markers.map((m) => ({ at: m.at, row: m }));
  for (let i = times.length - 1; i >= 0; i -= every) rows.push({ at: times[i] ?? 0, row: i });
  rows.sort((a, b) => b.at - a.at);
  return (
    // It scrolls, so the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div style={{ height: height + 30, overflow: "auto" }} tabIndex={0} role="region" aria-label={`${title}, values`}>
      <Table fz="xs" verticalSpacing={2} stickyHeader>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Time</Table.Th>
            {series.map((s) => (
              <Table.Th key={s.label} ta="right">
                {s.label}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ at, row }, n) => (
            <Table.Tr key={n}>
              <Table.Td className="nowrap">{dateTime(at * 1000)}</Table.Td>
              {typeof row !== "number" ? (
                <Table.Td colSpan={series.length} ta="center" c="dimmed">
                  {row.label}
                </Table.Td>
              ) : (
                series.map((s) => {
                  const v = s.values[row];
                  return (
                    <Table.Td key={s.label} ta="right">
                      {typeof v === "number" ? format(v) : none}
                    </Table.Td>
                  );
                })
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}
