import type { Bound, Range, Ranges } from "../search";
import { at as valueAt, type Field, type Run, type Value } from "./results";

/** An axis of the plots: maps values to positions from 0 to 1. */
export interface Scale {
  readonly field: Field;
  readonly log: boolean;
  /** Values of an axis of texts, in order. */
  readonly texts: readonly string[];
  readonly at: (v: Value | undefined) => number | undefined;
  /** The number at a position of a numeric axis. */
  readonly value: (place: number) => number;
  readonly ticks: readonly { readonly at: number; readonly label: string }[];
}

const collator = new Intl.Collator("en", { numeric: true });

/** The maximum number of texts on an axis; more cannot be distinguished. */
const maxTexts = 60;

/** A numeric axis is logarithmic if its values are positive and span two powers of ten. Few values are its ticks. */
export function scaleOf(field: Field, runs: readonly Run[], log?: boolean): Scale {
  if (field.numeric) {
    const { min, max } = field;
    const isLog = log ?? (min > 0 && max / min >= 100);
    if (isLog && min > 0 && max > min) {
      const a = Math.log10(min);
      const b = Math.log10(max);
      const at = (v: Value | undefined) => (typeof v === "number" && v > 0 ? (Math.log10(v) - a) / (b - a) : undefined);
      const value = (p: number) => 10 ** (a + p * (b - a));
      const few = valuesOf(field, runs, at);
      if (few) return { field, log: true, texts: [], at, value, ticks: few };
      const ticks = [];
      for (let p = Math.ceil(a - 1e-9); p <= b + 1e-9; p++) ticks.push({ at: (p - a) / (b - a), label: number(10 ** p) });
      return { field, log: true, texts: [], at, value, ticks: ticks.length >= 2 ? ticks : ends(min, max) };
    }
    const span = max - min;
    const at = (v: Value | undefined) => (typeof v === "number" && Number.isFinite(v) ? (span === 0 ? 0.5 : (v - min) / span) : undefined);
    return { field, log: false, texts: [], at, value: (p) => min + p * span, ticks: span === 0 ? [{ at: 0.5, label: number(min) }] : (valuesOf(field, runs, at) ?? steps(min, max)) };
  }
  const seen = new Set<string>();
  for (const r of runs) {
    const v = r.values.get(field.key);
    if (v !== undefined && seen.size <= maxTexts) seen.add(String(v));
  }
  const texts = [...seen].sort(collator.compare).slice(0, maxTexts);
  const place = new Map(texts.map((t, i) => [t, texts.length === 1 ? 0.5 : i / (texts.length - 1)]));
  const at = (v: Value | undefined) => (v === undefined ? undefined : place.get(String(v)));
  const every = Math.ceil(texts.length / 12);
  return { field, log: false, texts, at, value: () => NaN, ticks: texts.filter((_, i) => i % every === 0).map((t) => ({ at: place.get(t) ?? 0, label: t })) };
}

/** Ticks at the values themselves, if there are few and they are not too near to each other. */
function valuesOf(field: Field, runs: readonly Run[], at: Scale["at"]): { at: number; label: string }[] | undefined {
  const seen = new Set<number>();
  for (const r of runs) {
    const v = r.values.get(field.key);
    if (typeof v === "number") seen.add(v);
    if (seen.size > 8) return undefined;
  }
  const ticks = [...seen].sort((a, b) => a - b).map((v) => ({ at: at(v) ?? 0, label: number(v) }));
  return ticks.every((t, i) => i === 0 || t.at - (ticks[i - 1]?.at ?? 0) > 0.045) ? ticks : undefined;
}

const ends = (min: number, max: number) => [
  { at: 0, label: number(min) },
  { at: 1, label: number(max) },
];

function steps(min: number, max: number): { at: number; label: string }[] {
  const raw = (max - min) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) ?? raw;
  const ticks = [];
  for (let v = Math.ceil(min / step - 1e-9) * step; v <= max + step * 1e-9; v += step) ticks.push({ at: (v - min) / (max - min), label: number(Math.abs(v) < step / 1e6 ? 0 : v) });
  return ticks;
}

export function number(n: number): string {
  const abs = Math.abs(n);
  if (n === 0) return "0";
  if (abs >= 1e6 || abs < 1e-3) return n.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(Number(n.toPrecision(4)));
}

/** The values between two places of an axis; none if it has no text there. */
export function rangeAt(scale: Scale, low: number, high: number): Range | undefined {
  if (!scale.field.numeric) {
    const between = scale.texts.filter((t) => {
      const place = scale.at(t) ?? -1;
      return place >= low && place <= high;
    });
    const [first, last] = [between[0], between[between.length - 1]];
    return first === undefined || last === undefined ? undefined : [first, last];
  }
  const { min, max } = scale.field;
  // Rounded as far as a pixel shows; the ends of the axis are exact.
  const round = (n: number) => Number(n.toPrecision(4));
  return [low <= 0 ? min : round(scale.value(low)), high >= 1 ? max : round(scale.value(high))];
}

/** The position of a range on an axis, from 0 to 1. */
export function placesOf(scale: Scale, [low, high]: Range): readonly [low: number, high: number] {
  const place = (bound: Bound, open: number) => {
    if (bound === null) return open;
    const known = scale.at(bound);
    if (known !== undefined) return Math.max(0, Math.min(1, known));
    // Zero on a logarithmic axis, or a text that no run has any more.
    const next = scale.texts.findIndex((t) => order(t, bound) >= 0);
    return next < 0 ? (scale.field.numeric ? 0 : 1) : (scale.at(scale.texts[next]) ?? open);
  };
  return [place(low, 0), place(high, 1)];
}

const order = (a: number | string, b: number | string) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));

/** The runs whose values are in all ranges. A run without a value in a field with a range is not among them. */
export function inRanges(runs: readonly Run[], ranges: Ranges): readonly Run[] {
  const all = Object.entries(ranges);
  if (all.length === 0) return runs;
  return runs.filter((r) =>
    all.every(([key, [low, high]]) => {
      const v = valueAt(r, key);
      return v !== undefined && (low === null || order(low, v) <= 0) && (high === null || order(v, high) <= 0);
    }),
  );
}

/** The colours of a value from 0 to 1, in n steps: perceptually even, readable by people who see few colours (cividis to viridis). */
const stops = { light: ["#440154", "#3b528b", "#21918c", "#3f9b3f", "#c08a00"], dark: ["#8f6ee0", "#5f8fe0", "#35b9b0", "#7bd34f", "#fde725"] } as const;

export function colorAt(share: number, scheme: "light" | "dark"): string {
  const list = stops[scheme];
  const x = Math.max(0, Math.min(1, share)) * (list.length - 1);
  const i = Math.min(list.length - 2, Math.floor(x));
  return mix(list[i] ?? "#000000", list[i + 1] ?? "#000000", x - i);
}

function mix(a: string, b: string, t: number): string {
  const part = (s: string, i: number) => parseInt(s.slice(i, i + 2), 16);
  const channel = (i: number) => Math.round(part(a, i) + (part(b, i) - part(a, i)) * t);
  return `rgb(${channel(1)} ${channel(3)} ${channel(5)})`;
}

/** Where a pointer is in the element that listens to it, whichever of its children it is over. */
export function pointOf(e: { readonly clientX: number; readonly clientY: number; readonly currentTarget: Element }): { x: number; y: number } {
  const box = e.currentTarget.getBoundingClientRect();
  return { x: e.clientX - box.left, y: e.clientY - box.top };
}

/** The index of the point that is nearest to a pixel, within `reach`. Points are pairs in one array; NaN means no point. */
export function nearest(points: Float64Array, px: number, py: number, reach: number): number | undefined {
  let best: number | undefined;
  let least = reach * reach;
  for (let i = 0; i + 1 < points.length; i += 2) {
    const dx = (points[i] ?? NaN) - px;
    const dy = (points[i + 1] ?? NaN) - py;
    const d = dx * dx + dy * dy;
    if (d <= least) {
      least = d;
      best = i / 2;
    }
  }
  return best;
}

/** The distance of a pixel from a polyline of y-values at given x-positions. */
export function distanceToLine(xs: readonly number[], ys: readonly (number | undefined)[], px: number, py: number): number {
  let least = Infinity;
  for (let i = 0; i + 1 < xs.length; i++) {
    const y0 = ys[i];
    const y1 = ys[i + 1];
    if (y0 === undefined || y1 === undefined) continue;
    const x0 = xs[i] ?? 0;
    const dx = (xs[i + 1] ?? 0) - x0;
    const dy = y1 - y0;
    const t = Math.max(0, Math.min(1, ((px - x0) * dx + (py - y0) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(px - x0 - t * dx, py - y0 - t * dy));
  }
  return least;
}

/** Pearson's correlation of two fields over the runs that have both; undefined for fewer than three. */
export function correlation(runs: readonly Run[], a: string, b: string): number | undefined {
  let n = 0;
  let sa = 0;
  let sb = 0;
  let saa = 0;
  let sbb = 0;
  let sab = 0;
  for (const r of runs) {
    const x = r.values.get(a);
    const y = r.values.get(b);
    if (typeof x !== "number" || typeof y !== "number") continue;
    n++;
    sa += x;
    sb += y;
    saa += x * x;
    sbb += y * y;
    sab += x * y;
  }
  if (n < 3) return undefined;
  const va = saa - (sa * sa) / n;
  const vb = sbb - (sb * sb) / n;
  if (va <= 1e-15 * saa || vb <= 1e-15 * sbb) return undefined;
  return Math.max(-1, Math.min(1, (sab - (sa * sb) / n) / Math.sqrt(va * vb)));
}
