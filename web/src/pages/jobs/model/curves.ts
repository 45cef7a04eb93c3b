import { positive, smooth } from "@/pages/task/charts/series";

/** The answer of GET /tasks/{task}/metrics, as far as it is used here. */
export interface WireMetrics {
  readonly attempts?: readonly { readonly started_at?: string; readonly points?: readonly { readonly at: string; readonly metrics?: Readonly<Record<string, number>> }[] | null }[] | null;
}

/** One metric of one run: seconds since the run began, and values. */
export interface Curve {
  readonly run: string;
  readonly points: readonly (readonly [seconds: number, value: number])[];
}

/** Charts at most. */
const maxCharts = 24;

/** For each metric the curves of the runs that reported it at least twice, of their last attempt that did. */
export function curvesOf(runs: readonly string[], histories: readonly (WireMetrics | undefined)[]): { name: string; curves: Curve[] }[] {
  const charts = new Map<string, Curve[]>();
  runs.forEach((run, i) => {
    const attempts = (histories[i]?.attempts ?? []).filter((a) => (a.points?.length ?? 0) > 0);
    const last = attempts[attempts.length - 1];
    const points = last?.points ?? [];
    const start = Date.parse(last?.started_at ?? points[0]?.at ?? "");
    const found = new Map<string, [number, number][]>();
    for (const p of points) {
      const at = (Date.parse(p.at) - start) / 1000;
      for (const [name, v] of Object.entries(p.metrics ?? {})) {
        if (!Number.isFinite(v) || !Number.isFinite(at)) continue;
        const list = found.get(name);
        if (list) list.push([Math.max(0, at), v]);
        else found.set(name, [[Math.max(0, at), v]]);
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

/** A curve as it is drawn: without what has no place on a logarithmic scale, and as a moving average if `weight` is more than 0. */
export function drawn({ run, points }: Curve, weight: number, log: boolean): Curve {
  const values = points.map((p) => p[1]);
  const smoothed = smooth({ times: points.map((p) => p[0]), values: log ? positive(values) : values }, weight);
  return { run, points: points.flatMap(([x], i): [number, number][] => (typeof smoothed[i] === "number" ? [[x, smoothed[i]]] : [])) };
}

/** Where values lie on an axis, from 0 to 1, and the values at its beginning, middle and end. */
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
