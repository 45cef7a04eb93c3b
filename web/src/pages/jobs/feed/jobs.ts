import { useMemo } from "react";
import { client, data } from "@/api/client";
import type { Batch } from "@/api/live";
import { ApiError } from "@/api/error";
import type { Job } from "@/api/types";
import { moment, type JobsSearch } from "../search";
import { useFeed } from "./feed";

export interface JobPage {
  readonly jobs: readonly Job[];
  readonly next?: string | undefined;
}
export type ReadJobs = (page: { cursor?: string; limit: number }, signal: AbortSignal) => Promise<JobPage>;

export interface JobList {
  readonly rows: readonly Job[];
  /** Jobs that came while the list was held: they are shown by reveal. */
  readonly fresh: number;
  /** Rows that do not match the filters any more, but were kept so that nothing jumps. */
  readonly left: ReadonlySet<number>;
  readonly status: "loading" | "ready" | "failed";
  /** Why the list could not be loaded; if it is ready, why its next page could not. */
  readonly error?: unknown;
  /** The last attempt to refresh failed; rows may be old. */
  readonly stale: boolean;
  readonly more: boolean;
  readonly loadingMore: boolean;
}

const pageSize = 100;
/** Rows that are kept at most; beyond it the user narrows the filters. */
export const maxRows = 20_000;
/** Jobs that one refresh reads at most. */
const maxRefresh = 400;

/**
 * The jobs of one search, page by page, kept up to date without moving rows: what changed is read again in place, new
 * jobs are held back while the list is held (scrolled or selected), and jobs that stop matching stay until then, too.
 */
export class JobFeed {
  private readonly jobs = new Map<number, Job>();
  private held = new Map<number, Job>();
  private readonly gone = new Set<number>();
  private readonly dirty = new Set<number>();
  private unknown = false;
  private abort = new AbortController();
  private readonly listeners = new Set<() => void>();
  private list: JobList = { rows: [], fresh: 0, left: new Set(), status: "loading", stale: false, more: false, loadingMore: false };
  private cursor: string | undefined;
  private hold = false;
  private visible: readonly number[] = [];
  private busy = false;
  private nextAt = 0;

  constructor(
    private readonly read: ReadJobs,
    private readonly newestFirst: boolean,
  ) {}

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
  readonly get = () => this.list;

  /** Loads the first page; what is under way ends when the returned function is called. */
  start(): () => void {
    const abort = new AbortController();
    this.abort = abort;
    void this.load();
    return () => abort.abort();
  }

  /** Loads the first page, or tries again. */
  async load(): Promise<void> {
    const { signal } = this.abort;
    this.set({ status: "loading" });
    try {
      const page = await this.read({ limit: pageSize }, signal);
      this.take(page);
      this.cursor = page.next;
      this.publish({ status: "ready", more: page.next !== undefined, stale: false, error: undefined });
    } catch (e) {
      if (!signal.aborted) this.set({ status: "failed", error: e });
    }
  }

  /** Loads the next page. */
  async more(): Promise<void> {
    if (this.list.loadingMore || !this.cursor || this.list.status !== "ready" || this.jobs.size >= maxRows) return;
    const { signal } = this.abort;
    this.set({ loadingMore: true });
    try {
      const page = await this.read({ cursor: this.cursor, limit: pageSize }, signal);
      this.take(page);
      this.cursor = page.next;
      this.publish({ loadingMore: false, more: page.next !== undefined, error: undefined });
    } catch (e) {
      this.set({ loadingMore: false, ...(!signal.aborted && { error: e }) });
    }
  }

  /** Which rows are in view, and whether the list must keep its rows where they are. */
  view(visible: readonly number[], hold: boolean) {
    this.visible = visible;
    if (this.hold && !hold) {
      this.hold = false;
      this.reveal();
    }
    this.hold = hold;
  }

  /** Shows the jobs that were held back, and drops those that left. */
  reveal() {
    if (this.held.size === 0 && this.gone.size === 0) return;
    for (const [id, j] of this.held) this.jobs.set(id, j);
    this.held = new Map();
    for (const id of this.gone) this.jobs.delete(id);
    this.gone.clear();
    this.publish({});
  }

  note(batch: Batch) {
    if (batch.resync) {
      this.unknown = true;
      for (const id of this.jobs.keys()) this.dirty.add(id);
    }
    for (const e of batch.events) {
      const id = e.task ? Number(e.task.slice(0, e.task.indexOf("."))) : e.type === "job" ? e.job : undefined;
      if (id === undefined) continue;
      if (this.jobs.has(id)) this.dirty.add(id);
      else if (e.type === "job" && !this.held.has(id)) this.unknown = true;
    }
  }

  /** Reads again what changed and is in view, at most once a second and ten times as long as it takes. */
  async tick(now: number): Promise<void> {
    if (this.list.status === "failed" && this.unknown) {
      // The server was away when the list was to be loaded, and is back.
      this.unknown = false;
      await this.load();
    }
    if (this.busy || this.list.status !== "ready" || now < this.nextAt) return;
    const seen = this.visible.filter((id) => this.dirty.has(id));
    if (seen.length === 0 && !this.unknown) return;
    this.busy = true;
    const began = performance.now();
    const wasUnknown = this.unknown;
    try {
      if (wasUnknown) await this.readNew();
      if (seen.length > 0) await this.readAgain(Math.min(...seen), Math.max(...seen));
      this.publish({ stale: false });
    } catch (e) {
      if (this.abort.signal.aborted) return;
      if (e instanceof ApiError && !e.temporary) this.set({ status: "failed", error: e });
      else {
        this.unknown ||= wasUnknown;
        this.set({ stale: true });
      }
    } finally {
      this.busy = false;
      this.nextAt = now + Math.max(this.list.stale ? 5_000 : 1_000, 10 * (performance.now() - began));
    }
  }

  private async readNew() {
    this.unknown = false;
    if (!this.newestFirst) {
      // New jobs come after the last page: there is more to load then.
      if (this.cursor === undefined && this.jobs.size < maxRows) {
        const last = Math.max(0, ...this.jobs.keys());
        const page = await this.read({ ...(last > 0 && { cursor: String(last) }), limit: pageSize }, this.abort.signal);
        this.take(page);
        this.cursor = page.next;
        this.publish({ more: page.next !== undefined });
      }
      return;
    }
    const newest = Math.max(0, ...this.jobs.keys());
    const found: Job[] = [];
    let cursor: string | undefined;
    for (let i = 0; i < 5; i++) {
      const page = await this.read({ ...(cursor && { cursor }), limit: pageSize }, this.abort.signal);
      found.push(...page.jobs);
      cursor = page.next;
      if (!cursor || Number(cursor) <= newest) break;
    }
    for (const j of found) {
      if (this.jobs.has(j.id)) this.replace(j);
      else if (this.hold) this.held.set(j.id, j);
      else this.jobs.set(j.id, j);
    }
    if (cursor && Number(cursor) > newest) {
      // More came than one look reads: the list begins again at its new top.
      if (this.hold) return;
      for (const id of this.jobs.keys()) if (id <= newest) this.jobs.delete(id);
      this.cursor = cursor;
      this.publish({ more: true });
    }
  }

  /** Reads the loaded jobs with numbers from low to high. */
  private async readAgain(low: number, high: number) {
    const ids = [...this.jobs.keys()].filter((id) => id >= low && id <= high).sort((a, b) => (this.newestFirst ? b - a : a - b)).slice(0, maxRefresh);
    const first = ids[0];
    const last = ids[ids.length - 1];
    if (first === undefined || last === undefined) return;
    const cursor = String(this.newestFirst ? first + 1 : first - 1);
    const page = await this.read({ ...(cursor !== "0" && { cursor }), limit: Math.min(1000, ids.length + 10) }, this.abort.signal);
    const found = new Set<number>();
    let end = page.next === undefined ? last : (page.jobs[page.jobs.length - 1]?.id ?? last);
    end = this.newestFirst ? Math.max(end, last) : Math.min(end, last);
    for (const j of page.jobs) {
      found.add(j.id);
      if (this.jobs.has(j.id)) this.replace(j);
      else if (this.newestFirst ? j.id >= end : j.id <= end) (this.hold ? this.held : this.jobs).set(j.id, j);
    }
    for (const id of ids) {
      if (this.newestFirst ? id < end : id > end) continue;
      this.dirty.delete(id);
      if (found.has(id)) continue;
      if (this.hold) this.gone.add(id);
      else this.jobs.delete(id);
    }
  }

  private take(page: JobPage) {
    for (const j of page.jobs) this.replace(j);
  }

  private replace(j: Job) {
    this.jobs.set(j.id, j);
    this.gone.delete(j.id);
    this.dirty.delete(j.id);
  }

  private publish(change: Partial<JobList>) {
    const rows = [...this.jobs.values()].sort((a, b) => (this.newestFirst ? b.id - a.id : a.id - b.id));
    this.set({ rows, fresh: this.held.size, left: new Set(this.gone), ...change });
  }

  private set(change: Partial<JobList>) {
    this.list = { ...this.list, ...change };
    for (const l of this.listeners) l();
  }
}

/** Reads the pages of a search; durations before now are those before each request. */
function reader({ state, project, name, label, kind, owner, since, until, order }: JobsSearch): ReadJobs {
  return async (page, signal) => {
    const now = Date.now();
    const query = {
      ...(state && { state }), ...(project && { project }), ...(name && { name }), ...(label && { label }), ...(kind && { kind }), ...(owner && { owner }),
      ...(since && { since: moment(since, now) }), ...(until && { until: moment(until, now) }), ...(order && { order }), ...page,
    };
    return data(client.GET("/api/v1/jobs", { params: { query }, signal }));
  };
}

/** The jobs of a search. */
export function useJobs(search: JobsSearch): { list: JobList; feed: JobFeed } {
  const key = JSON.stringify({ ...search, sort: undefined });
  const feed = useMemo(() => {
    const q = JSON.parse(key) as JobsSearch;
    return new JobFeed(reader(q), q.order !== "oldest");
  }, [key]);
  return { list: useFeed(feed), feed };
}
