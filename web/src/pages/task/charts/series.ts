import type { AttemptMetrics, Sample, Series } from "@/api/types";

/** Values over time, in seconds since 1970; null where the line breaks. */
export interface Curve {
  readonly times: readonly number[];
  readonly values: readonly (number | null)[];
  /** Where each attempt begins among them. */
  readonly parts: readonly { readonly attempt: number; readonly from: number }[];
}

export const seconds = (at: string) => Date.parse(at) / 1000;

/** One curve for each metric, by name, over all attempts; it breaks between two attempts. */
export function curvesOf(attempts: readonly Pick<AttemptMetrics, "attempt" | "points">[]): Map<string, Curve> {
  const curves = new Map<string, { times: number[]; values: (number | null)[]; parts: { attempt: number; from: number }[] }>();
  for (const a of attempts) {
    const seen = new Set<string>();
    for (const p of a.points) {
      if (p.at === undefined) continue;
      const t = seconds(p.at);
      for (const [name, v] of Object.entries(p.metrics ?? {})) {
        let c = curves.get(name);
        if (!c) curves.set(name, (c = { times: [], values: [], parts: [] }));
        const last = c.times.at(-1);
        if (last !== undefined && !seen.has(name)) {
          c.times.push(Math.max(last, Math.min(t, (last + t) / 2)));
          c.values.push(null);
        }
        if (!seen.has(name)) c.parts.push({ attempt: a.attempt, from: c.times.length });
        seen.add(name);
        // Clocks may step back; a chart needs ascending times.
        c.times.push(Math.max(t, c.times.at(-1) ?? t));
        c.values.push(Number.isFinite(v) ? v : null);
      }
    }
  }
  return new Map([...curves].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })));
}

/** The values of one attempt at the times of all, so that attempts are lines of their own. */
export function partOf(curve: Curve, values: readonly (number | null)[], i: number): readonly (number | null)[] {
  const from = curve.parts[i]?.from ?? 0;
  const to = curve.parts[i + 1]?.from ?? values.length;
  return values.map((v, n) => (n >= from && n < to ? v : null));
}

/** The values that have a place on a logarithmic scale. */
export const positive = (values: Curve["values"]): Curve["values"] => values.map((v) => (v !== null && v > 0 ? v : null));

/**
 * Exponential moving average, weighted by time so that it does not depend on how often values come, and debiased so
 * that it does not begin at zero. 0 does not change the curve; towards 1 it is smoother. A gap begins a new average.
 */
export function smooth(curve: Pick<Curve, "times" | "values">, weight: number): readonly (number | null)[] {
  if (weight <= 0) return curve.values;
  const usual = medianStep(curve.times);
  const out: (number | null)[] = [];
  let sum = 0;
  let norm = 0;
  let before: number | undefined;
  curve.values.forEach((v, i) => {
    if (v === null) {
      sum = norm = 0;
      before = undefined;
      out.push(null);
      return;
    }
    const t = curve.times[i] ?? 0;
    const steps = before === undefined || usual <= 0 ? 1 : Math.min(1_000, (t - before) / usual);
    const keep = weight ** steps;
    sum = sum * keep + v * (1 - weight);
    norm = norm * keep + (1 - weight);
    before = t;
    out.push(sum / norm);
  });
  return out;
}

function medianStep(times: readonly number[]): number {
  const steps: number[] = [];
  for (let i = 1; i < times.length; i++) steps.push((times[i] ?? 0) - (times[i - 1] ?? 0));
  steps.sort((a, b) => a - b);
  return steps[steps.length >> 1] ?? 0;
}

export interface Resource {
  readonly title: string;
  readonly unit: "cores" | "bytes" | "rate" | "share" | "celsius" | "watts" | "count";
  readonly times: readonly number[];
  readonly series: readonly { readonly label: string; readonly values: readonly (number | null)[] }[];
}

const num = (v: unknown): number | null => (typeof v === "number" && Number.isFinite(v) ? v : null);

/** The charts of a task's usage: those with measurements. */
export function resourcesOf(usages: readonly Pick<Series, "samples">[], gpuName: (uuid: string) => string): Resource[] {
  const samples: (Sample | undefined)[] = [];
  const times: number[] = [];
  for (const u of usages) {
    const first = u.samples[0];
    if (first && times.length > 0) {
      times.push(Math.max(times.at(-1) ?? 0, seconds(first.at) - 0.001));
      samples.push(undefined);
    }
    for (const s of u.samples) {
      times.push(Math.max(times.at(-1) ?? 0, seconds(s.at)));
      samples.push(s);
    }
  }
  const line = (label: string, of: (s: Sample) => unknown) => ({ label, values: samples.map((s) => (s ? num(of(s)) : null)) });
  const uuids: string[] = [];
  for (const s of samples) for (const g of s?.gpus ?? []) if (!uuids.includes(g.uuid)) uuids.push(g.uuid);
  const eachGpu = (of: (g: NonNullable<NonNullable<Sample["gpus"]>[number]>) => unknown) =>
    uuids.map((uuid) => line(gpuName(uuid), (s) => {
      const g = s.gpus?.find((d) => d.uuid === uuid);
      return g && of(g);
    }));
  const all: Resource[] = [
    { title: "CPU", unit: "cores", times, series: [line("cores", (s) => s.cpu)] },
    { title: "Memory", unit: "bytes", times, series: [line("memory", (s) => s.memory)] },
    { title: "GPU utilization", unit: "share", times, series: eachGpu((g) => g.utilization) },
    { title: "GPU memory of the task", unit: "bytes", times, series: eachGpu((g) => g.own) },
    { title: "GPU memory of the device", unit: "bytes", times, series: eachGpu((g) => g.memory) },
    { title: "GPU temperature", unit: "celsius", times, series: eachGpu((g) => g.temperature) },
    { title: "GPU power", unit: "watts", times, series: eachGpu((g) => g.power) },
    { title: "Disk", unit: "rate", times, series: [line("read", (s) => s.read), line("written", (s) => s.write)] },
    { title: "Network of the worker", unit: "rate", times, series: [line("received", (s) => s.net_in), line("sent", (s) => s.net_out)] },
    { title: "Files of the task", unit: "bytes", times, series: [line("size", (s) => s.disk)] },
    { title: "Processes and threads", unit: "count", times, series: [line("processes and threads", (s) => s.pids)] },
  ];
  return all
    .map((r) => ({ ...r, series: r.series.filter((s) => s.values.some((v) => v !== null)) }))
    .filter((r) => r.series.length > 0);
}

/** The prefix under which metrics are grouped: "train" of train/loss. */
export function groupOf(name: string): string {
  const at = name.search(/[/.:]/);
  return at > 0 ? name.slice(0, at) : "";
}
