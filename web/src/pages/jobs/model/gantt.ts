import type { AnyState, Attempt, Task } from "@/api/types";
import { numberOf } from "@/pages/task/attempt";

/** One bar of the timeline. Times are milliseconds; an open one has no end. */
export interface Bar {
  readonly task: string;
  readonly index: number;
  readonly attempt: number;
  readonly name: string;
  readonly worker: string;
  readonly state: AnyState;
  /** When the task was queued for it; absent if unknown. */
  readonly queued?: number | undefined;
  readonly assigned?: number | undefined;
  /** When the attempt began on its worker: it was started, or assigned. */
  readonly start: number;
  readonly end?: number | undefined;
  /** It was not the task's first attempt. */
  readonly retry: boolean;
  readonly message?: string | undefined;
}

const ms = (at: string | undefined) => (at ? Date.parse(at) : undefined);

/** A task that ran waits for its next attempt. */
const back = (t: Task) => t.attempt !== undefined && (t.state === "queued" || t.state === "waiting");

/** A task has attempts that it does not itself tell about. */
export const hasEarlier = (t: Task) => (t.attempt ?? 0) > 1 || back(t);

/** What the attempts of a task depend on: they are read again when it changes. */
export const progressOf = (t: Task) => `${t.attempt}${back(t) ? " ended" : ""}`;

/** The bars of a task: its ended attempts, if they were read, and its last one. The outcome of an attempt may not be known yet. */
export function barsOf(task: Task, attempts: readonly Attempt[] = []): Bar[] {
  const bars: Bar[] = [];
  const ended = back(task);
  let before: number | undefined;
  attempts.forEach((a, i) => {
    const n = numberOf(a);
    const assigned = ms(a.assigned_at);
    const start = ms(a.started_at) ?? assigned;
    if (start !== undefined && (n !== task.attempt || ended)) {
      // The server makes the next attempt when it has given up this one.
      const next = ms(attempts[i + 1]?.assigned_at) ?? ms(task.assigned_at);
      bars.push({
        task: task.id, index: task.index, attempt: n, name: task.name, worker: a.worker ?? "", state: (a.outcome as AnyState | undefined) ?? "unknown",
        queued: before ?? ms(task.created_at), assigned, start, end: Math.max(start, ms(a.finished_at) ?? next ?? start), retry: n > 1, message: a.message ?? a.reason,
      });
    }
    before = ms(a.finished_at) ?? before;
  });
  const assigned = ms(task.assigned_at);
  const start = ms(task.started_at) ?? assigned;
  if (start === undefined || (ended && attempts.length > 0)) return bars;
  const attempt = task.attempt ?? 1;
  bars.push({
    task: task.id, index: task.index, attempt, name: task.name, worker: task.worker ?? "", state: task.state,
    queued: ms(task.queued_at), assigned, start, end: ms(task.finished_at), retry: attempt > 1, message: task.message ?? task.reason,
  });
  return bars;
}

/** A row of the timeline: a worker has as many as it runs attempts at once. */
export interface Lane {
  readonly key: string;
  readonly label: string;
  /** It continues the lane above: the same worker. */
  readonly more: boolean;
  readonly bars: readonly Bar[];
}

export type GroupBy = "worker" | "task";

/** Puts bars into lanes so that none overlaps another; within a lane they are in the order of time. */
export function lanes(bars: readonly Bar[], by: GroupBy, now: number, nameOf: (worker: string) => string): Lane[] {
  const groups = new Map<string, Bar[]>();
  for (const b of bars) {
    const key = by === "worker" ? b.worker : b.task;
    const list = groups.get(key);
    if (list) list.push(b);
    else groups.set(key, [b]);
  }
  const collator = new Intl.Collator("en", { numeric: true });
  const keys = [...groups.keys()].sort(by === "worker" ? (a, b) => collator.compare(nameOf(a), nameOf(b)) : (a, b) => (groups.get(a)?.[0]?.index ?? 0) - (groups.get(b)?.[0]?.index ?? 0));
  const out: Lane[] = [];
  for (const key of keys) {
    const list = (groups.get(key) ?? []).sort((a, b) => a.start - b.start || a.index - b.index);
    // The first free lane takes the next bar; ends are kept in a list as long as the lanes, which is the worker's parallelism.
    const rows: { bars: Bar[]; end: number }[] = [];
    for (const b of list) {
      let row = rows.find((r) => r.end <= b.start);
      if (!row) {
        row = { bars: [], end: 0 };
        rows.push(row);
      }
      row.bars.push(b);
      row.end = Math.max(b.end ?? now, b.start + 1);
    }
    rows.forEach((r, i) => out.push({ key: `${key}#${i}`, label: by === "worker" ? nameOf(key) : key, more: i > 0, bars: r.bars }));
  }
  return out;
}

export interface Span {
  readonly from: number;
  readonly to: number;
}

/** The time that bars cover, with waits. */
export function extent(bars: readonly Bar[], now: number): Span {
  let from = Infinity;
  let to = -Infinity;
  for (const b of bars) {
    from = Math.min(from, b.queued ?? b.start, b.start);
    to = Math.max(to, b.end ?? now);
  }
  if (from > to) return { from: now - 1000, to: now };
  return to - from < 10 ? { from, to: from + 10 } : { from, to };
}

/** Zooms around a place from 0 to 1, and keeps within what there is. */
export function zoom(span: Span, all: Span, factor: number, at: number): Span {
  const width = Math.max(2, Math.min(all.to - all.from, (span.to - span.from) / factor));
  const from = span.from + (span.to - span.from) * at - width * at;
  return keep({ from, to: from + width }, all);
}

export function pan(span: Span, all: Span, by: number): Span {
  return keep({ from: span.from + by, to: span.to + by }, all);
}

function keep(span: Span, all: Span): Span {
  const width = Math.min(span.to - span.from, all.to - all.from);
  const from = Math.max(all.from, Math.min(span.from, all.to - width));
  return { from, to: from + width };
}

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 172800e3, 604800e3];

/** Milliseconds after the start at which lines are drawn: round times, about `wish` of them. */
export function ticks(span: Span, origin: number, wish: number): number[] {
  const want = (span.to - span.from) / Math.max(1, wish);
  const step = steps.find((s) => s >= want) ?? 604800e3 * Math.ceil(want / 604800e3);
  const out: number[] = [];
  for (let t = Math.ceil((span.from - origin) / step) * step; origin + t <= span.to && out.length < 200; t += step) out.push(t);
  return out;
}

/** The first bar of a lane that may be seen from a time on: bars of a lane do not overlap. */
export function firstFrom(bars: readonly Bar[], from: number, now: number): number {
  let low = 0;
  let high = bars.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if ((bars[mid]?.end ?? now) < from) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** The utilization of the workers: the share of the lanes' time in which something ran. */
export function busy(all: readonly Lane[], span: Span, now: number): number | undefined {
  const total = (span.to - span.from) * all.length;
  if (total <= 0) return undefined;
  let sum = 0;
  for (const l of all) for (const b of l.bars) sum += Math.max(0, Math.min(b.end ?? now, span.to) - Math.max(b.start, span.from));
  return Math.min(1, sum / total);
}
