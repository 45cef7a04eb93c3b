import { useMemo } from "react";
import { client, data } from "@/api/client";
import { ApiError } from "@/api/error";
import type { Batch } from "@/api/live";
import type { Task, TaskState } from "@/api/types";
import { finalStates, taskStates } from "@/api/types";
import { numberIn } from "../model/states";
import { maxSpans } from "../search";
import { useFeed } from "./feed";

export interface TaskPage {
  readonly tasks: readonly Task[];
  readonly next?: string | undefined;
}
export type ReadTasks = (page: { cursor?: string; limit: number; tasks?: string }, signal: AbortSignal) => Promise<TaskPage>;

export interface TaskList {
  readonly rows: readonly Task[];
  readonly status: "loading" | "ready" | "failed";
  /** Why the list could not be loaded; if it is ready, why its last reload or next page could not. */
  readonly error?: unknown;
  readonly more: boolean;
  readonly loadingMore: boolean;
}

/** Tasks that one refresh reads at most. */
const maxRefresh = 500;
/** Task numbers as the API takes them: "0-9,12". It has as many as a URL has room for. */
export function spansOf(numbers: readonly number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  let text = "";
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (sorted[j + 1] === (sorted[j] ?? 0) + 1) j++;
    const part = i === j ? String(sorted[i]) : `${sorted[i]}-${sorted[j]}`;
    if (text.length + part.length >= maxSpans) break;
    text += text ? `,${part}` : part;
    i = j + 1;
  }
  return text;
}

/** The task numbers of "0-9,12", up to a maximum. */
export function numbersOf(spans: string, most: number): number[] {
  const out: number[] = [];
  for (const part of spans.split(",")) {
    const [first = NaN, last = first] = part.split("-").map(Number);
    for (let n = first; n <= last && out.length < most; n++) out.push(n);
  }
  return out;
}

/** Tasks of one job, page by page. Live events change them in place; ends are read again, because only that has results. */
export class TaskFeed {
  private readonly tasks = new Map<number, Task>();
  private readonly dirty = new Set<number>();
  private abort = new AbortController();
  private readonly listeners = new Set<() => void>();
  private list: TaskList = { rows: [], status: "loading", more: false, loadingMore: false };
  private cursor: string | undefined;
  private changed = false;
  private reload = false;
  private busy = false;
  private nextAt = 0;
  private generation = 0;

  constructor(
    private readonly job: number,
    private readonly read: ReadTasks,
    private readonly options: { readonly states: readonly TaskState[]; readonly page: number; readonly auto: number; readonly max: number },
  ) {}

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
  readonly get = () => this.list;

  start(): () => void {
    const abort = new AbortController();
    this.abort = abort;
    void this.load();
    return () => abort.abort();
  }

  /** Loads from the beginning: one page, and more until there are `auto` tasks. */
  async load(): Promise<void> {
    const { signal } = this.abort;
    const generation = ++this.generation;
    if (this.list.status === "failed") this.set({ status: "loading" });
    let cursor: string | undefined;
    const found = new Map<number, Task>();
    try {
      const wish = Math.max(this.options.auto, Math.min(this.tasks.size, this.options.max));
      do {
        const page = await this.read({ ...(cursor && { cursor }), limit: this.options.page }, signal);
        for (const t of page.tasks) found.set(t.index, t);
        cursor = page.next;
        if (generation !== this.generation) return;
        if (this.list.status !== "ready" || found.size >= this.tasks.size) {
          this.replace(found);
          this.cursor = cursor;
          this.publish({ status: "ready", more: cursor !== undefined, loadingMore: cursor !== undefined && found.size < wish });
        }
      } while (cursor && found.size < wish);
      this.cursor = cursor;
      this.replace(found);
      this.publish({ status: "ready", more: cursor !== undefined && found.size < this.options.max, loadingMore: false, error: undefined });
    } catch (e) {
      if (signal.aborted || generation !== this.generation) return;
      if (this.tasks.size === 0) this.set({ status: "failed", error: e });
      else {
        // What is shown stays, and so does where it continues.
        this.reload = !(e instanceof ApiError) || e.temporary;
        this.set({ loadingMore: false, error: e });
      }
    }
  }

  /** Tries again what failed: a reload, or the next page. */
  async again(): Promise<void> {
    if (!this.reload && this.list.more) return this.more();
    this.reload = false;
    return this.load();
  }

  async more(): Promise<void> {
    if (this.list.loadingMore || !this.cursor || this.list.status !== "ready" || this.tasks.size >= this.options.max) return;
    const { signal } = this.abort;
    const generation = this.generation;
    this.set({ loadingMore: true });
    try {
      const page = await this.read({ cursor: this.cursor, limit: this.options.page }, signal);
      if (generation !== this.generation) return;
      for (const t of page.tasks) this.tasks.set(t.index, t);
      this.cursor = page.next;
      this.publish({ loadingMore: false, more: page.next !== undefined && this.tasks.size < this.options.max, error: undefined });
    } catch (e) {
      if (generation === this.generation) this.set({ loadingMore: false, ...(!signal.aborted && { error: e }) });
    }
  }

  note(batch: Batch) {
    if (batch.resync) this.reload = true;
    const filter = this.options.states;
    for (const e of batch.events) {
      const n = numberIn(e.task, this.job);
      if (n === undefined) continue;
      const t = this.tasks.get(n);
      const state = taskStates.find((s) => s === e.state) ?? t?.state;
      if (!state) continue;
      if (filter.length > 0 && filter.includes(state) !== (t !== undefined && filter.includes(t.state))) this.reload = true;
      if (!t) continue;
      if (state !== t.state || (e.detail?.attempt !== undefined && e.detail.attempt !== t.attempt)) this.dirty.add(n);
      const { progress, step, metrics } = e.detail ?? {};
      this.tasks.set(n, { ...t, state, ...(progress !== undefined && { progress }), ...(step !== undefined && { step }), ...(metrics && { metrics: { ...t.metrics, ...metrics } }) });
      this.changed = true;
    }
  }

  async tick(now: number): Promise<void> {
    if (this.changed) {
      this.changed = false;
      this.publish({});
    }
    // A list that failed to load is loaded when the server is back.
    const waits = this.list.status === "ready" ? this.reload || this.dirty.size > 0 : this.list.status === "failed" && this.reload;
    if (this.busy || !waits || this.list.loadingMore || now < this.nextAt) return;
    this.busy = true;
    const began = performance.now();
    const { signal } = this.abort;
    try {
      if (this.reload) {
        this.reload = false;
        this.dirty.clear();
        await this.load();
      } else {
        // Ends first: they have results.
        const ended = (n: number) => finalStates.includes(this.tasks.get(n)?.state ?? "waiting");
        const numbers = [...this.dirty].sort((a, b) => Number(ended(b)) - Number(ended(a))).slice(0, maxRefresh);
        const page = await this.read({ tasks: spansOf(numbers), limit: maxRefresh }, signal);
        for (const t of page.tasks) {
          this.dirty.delete(t.index);
          if (this.tasks.has(t.index)) this.tasks.set(t.index, t);
        }
        if (page.tasks.length === 0) this.dirty.clear();
        this.publish({});
      }
    } catch {
      // The tasks stay as they are; the page's banner says that the server cannot be reached.
    } finally {
      this.busy = false;
      this.nextAt = now + Math.max(this.list.error === undefined ? 1_000 : 5_000, 5 * (performance.now() - began));
    }
  }

  private replace(found: ReadonlyMap<number, Task>) {
    this.tasks.clear();
    for (const [n, t] of found) this.tasks.set(n, t);
  }

  private publish(change: Partial<TaskList>) {
    this.set({ rows: [...this.tasks.values()].sort((a, b) => a.index - b.index), ...change });
  }

  private set(change: Partial<TaskList>) {
    this.list = { ...this.list, ...change };
    for (const l of this.listeners) l();
  }
}

export interface TasksOf {
  readonly states?: readonly TaskState[] | undefined;
  /** Task numbers, as 0-9,12. */
  readonly numbers?: string | undefined;
  /** Tasks of one request. */
  readonly page?: number;
  /** How many are loaded without being asked for. */
  readonly auto?: number;
  readonly max?: number;
}

export function useTasks(job: number, { states = [], numbers, page = 200, auto = 1, max = 50_000 }: TasksOf): { list: TaskList; feed: TaskFeed } {
  const key = JSON.stringify([job, states, numbers, page, auto, max]);
  const feed = useMemo(() => {
    const read: ReadTasks = async (p, signal) =>
      data(client.GET("/api/v1/jobs/{job}/tasks", { params: { path: { job: String(job) }, query: { ...(states.length > 0 && !p.tasks && { state: [...states] }), ...(numbers && { tasks: numbers }), ...p } }, signal }));
    return new TaskFeed(job, read, { states, page, auto, max });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- key holds all of them
  }, [key]);
  return { list: useFeed(feed), feed };
}
