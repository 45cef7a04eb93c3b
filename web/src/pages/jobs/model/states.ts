import type { components } from "@/api/schema";
import { taskStates, type TaskState } from "@/api/types";

/** The states of one stage in the answer of GET /jobs/{job}/states. */
export type StageStates = Pick<components["schemas"]["StageStates"], "first" | "size" | "from" | "runs" | "packed">;

/** The number of a state in the arrays of this file: its place in taskStates. */
export const codeOf: Readonly<Record<string, number>> = Object.fromEntries(taskStates.map((s, i) => [s, i]));

/** Elements of one stage at most: the server's own limit of a job. */
export const maxElements = 10_000_000;

/**
 * The states of all elements of a stage, one byte each. Names are those of the answer, in the order of its numbers; a
 * state that is not known here is shown as waiting.
 */
export function decode(stage: StageStates, names: readonly string[]): Uint8Array {
  const size = Math.max(0, Math.min(stage.size, maxElements));
  const states = new Uint8Array(size);
  const codes = Uint8Array.from(names, (n) => codeOf[n] ?? 0);
  let at = Math.max(0, stage.from - stage.first);
  if (stage.packed) {
    const bytes = fromBase64(stage.packed);
    const end = Math.min(size, at + bytes.length * 2);
    for (let i = 0; at < end; i++, at++) states[at] = codes[((bytes[i >> 1] ?? 0) >> ((i & 1) * 4)) & 15] ?? 0;
    return states;
  }
  for (const run of stage.runs ?? []) {
    const [code = 0, count = 0] = run ?? [];
    if (at >= size || count <= 0) continue;
    const end = Math.min(size, at + count);
    states.fill(codes[code] ?? 0, at, end);
    at = end;
  }
  return states;
}

function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** How many elements are in each state, by number of the state. */
export function tally(states: Uint8Array): number[] {
  const counts = new Uint32Array(256);
  for (let i = 0; i < states.length; i++) counts[states[i] ?? 0]!++; // eslint-disable-line @typescript-eslint/no-non-null-assertion -- there is one for each byte
  return [...counts.subarray(0, taskStates.length)];
}

/** The part of a live event that matters here. */
export interface StateEvent {
  readonly epoch: string;
  readonly seq: number;
  readonly task?: string;
  readonly state?: string;
}

/** Whether an event is newer than an answer that was made at a place ("EPOCH-SEQ") of the server's stream. */
export function isAfter(e: StateEvent, place: string): boolean {
  const dash = place.lastIndexOf("-");
  // The numbers of another epoch say nothing: the server was restarted.
  return e.epoch !== place.slice(0, dash) || e.seq > Number(place.slice(dash + 1));
}

/** The newest event of each task of a job that came while its states were on their way. */
export class Backlog {
  private readonly events = new Map<string, StateEvent>();

  constructor(private readonly max = 200_000) {}

  /** Keeps events; false if there are more than it keeps: then the states have to be read again. */
  note(job: number, events: readonly StateEvent[]): boolean {
    for (const e of events) {
      if (!e.task || numberIn(e.task, job) === undefined) continue;
      if (this.events.size >= this.max && !this.events.has(e.task)) return false;
      this.events.set(e.task, e);
    }
    return true;
  }

  all(): StateEvent[] {
    return [...this.events.values()];
  }

  clear() {
    this.events.clear();
  }
}

/** The task's number in an id such as 17.3; undefined for another job's. */
export function numberIn(id: string | undefined, job: number): number | undefined {
  if (!id) return undefined;
  const dot = id.indexOf(".");
  if (dot < 0 || Number(id.slice(0, dot)) !== job) return undefined;
  const n = Number(id.slice(dot + 1));
  return Number.isInteger(n) && n >= 0 ? n : undefined;
}

/** Writes what events say that are newer than the states into states and counts; returns the elements that changed. */
export function apply({ states, counts, place }: { readonly states: Uint8Array; readonly counts: number[]; readonly place: string }, first: number, job: number, events: readonly StateEvent[]): number[] {
  const changed: number[] = [];
  for (const e of events) {
    const n = numberIn(e.task, job);
    const code = e.state === undefined ? undefined : codeOf[e.state];
    if (n === undefined || code === undefined || !isAfter(e, place)) continue;
    const i = n - first;
    const before = states[i];
    if (before === undefined || before === code) continue;
    states[i] = code;
    counts[before] = (counts[before] ?? 0) - 1;
    counts[code] = (counts[code] ?? 0) + 1;
    changed.push(i);
  }
  return changed;
}

/** How many elements the server counts in other states than those here. */
export function drift(counts: readonly number[], server: Partial<Record<TaskState, number>>): number {
  return taskStates.reduce((sum, s, i) => sum + Math.abs((counts[i] ?? 0) - (server[s] ?? 0)), 0) / 2;
}

/** Counts what happened in the last 5 to 10 seconds. Times are in milliseconds and only grow. */
export class Recent {
  private since = 0;
  private now = 0;
  private before = 0;

  add(n: number, at: number) {
    this.turn(at);
    this.now += n;
  }

  count(at: number): number {
    this.turn(at);
    return this.now + this.before;
  }

  private turn(at: number) {
    if (at - this.since < 5_000) return;
    this.before = at - this.since < 10_000 ? this.now : 0;
    this.now = 0;
    this.since = at;
  }
}

/** The next element with a state that is shown, from `at` in a direction; it wraps around. Undefined if there is none. */
export function nextWith(states: Uint8Array, shown: ReadonlySet<number>, at: number, step: 1 | -1): number | undefined {
  const n = states.length;
  for (let k = 1; k <= n; k++) {
    const i = (((at + step * k) % n) + n) % n;
    if (shown.has(states[i] ?? 0)) return i;
  }
  return undefined;
}
