import { positive, smooth } from "@/pages/task/charts/series";

/** The answer of GET /tasks/{task}/metrics, the fields that are used here. */
export interface WireMetrics {
  readonly attempts?: readonly { readonly started_at?: string; readonly points?: readonly { readonly at: string; readonly metrics?: Readonly<Record<string, number>> }[] | null }[] | null;
}

/** One metric of one run: values over seconds since the run began, or over another metric. */
export interface Curve {
  readonly run: string;
  readonly points: readonly (readonly [x: number, value: number])[];
}

/** Charts at most. */
const maxCharts = 24;

/** The last attempt that reported anything. */
const lastOf = (history: WireMetrics | undefined) => (history?.attempts ?? []).findLast((a) => (a.points?.length ?? 0) > 0);

/** Metrics over which the runs can be drawn: all of them that reported anything report it, and it rises and never falls, such as a step or an epoch. */
export function overs(histories: readonly (WireMetrics | undefined)[]): string[] {
  const each = histories.flatMap((h) => {
    const rises = new Map<string, boolean>();
    const before = new Map<string, number>();
    for (const p of lastOf(h)?.points ?? []) {
      for (const [name, v] of Object.entries(p.metrics ?? {})) {
        const last = before.get(name);
        if (!Number.isFinite(v) || (last !== undefined && v < last)) rises.set(name, false);
        else if (last !== undefined && v > last && !rises.has(name)) rises.set(name, true);
        before.set(name, v);
      }
    }
    return before.size === 0 ? [] : [new Set([...rises].filter(([, r]) => r).map(([name]) => name))];
  });
  return [...(each[0] ?? [])].filter((name) => each.every((names) => names.has(name))).sort();
}

/**
 * For each metric the curves of the runs that reported it at least twice, of their last attempt that did: over time, or over another metric. A point names
 * only what was reported at its time, so the other metric keeps its value until the next one.
 */
export function curvesOf(runs: readonly string[], histories: readonly (WireMetrics | undefined)[], over?: string): { name: string; curves: Curve[] }[] {
  const charts = new Map<string, Curve[]>();
  runs.forEach((run, i) => {
    const last = lastOf(histories[i]);
    const points = last?.points ?? [];
    const start = Date.parse(last?.started_at ?? points[0]?.at ?? "");
    const found = new Map<string, [number, number][]>();
    let x = NaN;
    for (const p of points) {
      x = over === undefined ? Math.max(0, (Date.parse(p.at) - start) / 1000) : (p.metrics?.[over] ?? x);
      for (const [name, v] of Object.entries(p.metrics ?? {})) {
        if (name === over || !Number.isFinite(v) || !Number.isFinite(x)) continue;
        const list = found.get(name);
        if (list) list.push([x, v]);
        else found.set(name, [[x, v]]);
      }
    }
    for (const [name, list] of found) {
      if (list.length < 2) continue;
      const chart = charts.get(name);
      if (chart) chart.push({ run, points: list });
      else charts.set(name, [{ run, points: list }]);
    }
  });
  return [...charts].slice(0, maxCharts).map(([name, curves]) => ({ name, curves }));
}

/** A curve as it is drawn: without values that a logarithmic scale cannot show, and as a moving average if `weight` is more than 0. */
export function drawn({ run, points }: Curve, weight: number, log: boolean): Curve {
  const values = points.map((p) => p[1]);
  const smoothed = smooth({ times: points.map((p) => p[0]), values: log ? positive(values) : values }, weight);
  return { run, points: points.flatMap(([x], i): [number, number][] => (typeof smoothed[i] === "number" ? [[x, smoothed[i]]] : [])) };
}

/** The positions of values on an axis, from 0 to 1, and the values at its beginning, middle and end. */
export interface Axis {
  readonly at: (v: number) => number;
  readonly ticks: readonly number[];
}

/** An axis over some values, all of them positive if it is logarithmic. */
export function axisOf(values: readonly number[], log: boolean): Axis {
  const to = log ? Math.log10 : (v: number) => v;
  const from = log ? (v: number) => 10 ** v : (v: number) => v;
  const low = Math.min(...values.map(to));
  const high = Math.max(...values.map(to));
  const span = high - low || (log ? 1 : Math.abs(high) || 1);
  return { at: (v) => (to(v) - low) / span, ticks: [0, 0.5, 1].map((p) => from(low + span * p)) };
}
