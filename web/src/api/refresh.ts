import type { Query, QueryClient } from "@tanstack/react-query";
import { ApiError } from "./error";
import { live, type Batch, type LiveEvent } from "./live";

const tick = 250;

/** The topics of an event; queries name those that they depend on in meta.live. */
export function topicsOf(e: LiveEvent): string[] {
  if (e.type === "worker") return ["workers", `worker:${e.worker ?? ""}`];
  const job = e.task ? e.task.slice(0, e.task.indexOf(".")) : String(e.job ?? "");
  if (e.type === "job") return ["jobs", `job:${job}`];
  const topics = ["tasks", `job:${job}`, `task:${e.task ?? ""}`];
  if (e.worker) topics.push(`worker:${e.worker}`);
  return topics;
}

/**
 * Refetches the queries that are shown when events touch what they depend on: each at most once in its meta.every (1 s
 * by default) and ten times its own duration, for any number of events. Queries that are not shown become stale.
 */
export class Refresher {
  private readonly dirty = new Set<string>();
  private all = false;
  private readonly due = new Map<string, { since: number }>();
  private readonly took = new Map<string, number>();

  constructor(private readonly queries: QueryClient) {}

  run(): () => void {
    const leave = live.subscribe((b) => this.note(b));
    const timer = setInterval(() => this.tick(Date.now()), tick);
    return () => {
      leave();
      clearInterval(timer);
    };
  }

  note(batch: Batch) {
    if (batch.resync) this.all = true;
    if (this.all || batch.events.length === 0) return;
    const wanted = this.wanted();
    for (const e of batch.events) {
      for (const t of topicsOf(e)) if (wanted.has(t)) this.dirty.add(t);
    }
  }

  /** The topics that queries depend on: others are not stored. */
  private wanted(): ReadonlySet<string> {
    const topics = new Set<string>();
    for (const q of this.queries.getQueryCache().getAll()) for (const t of q.meta?.live ?? []) topics.add(t);
    return topics;
  }

  tick(now: number) {
    if (this.all || this.dirty.size > 0) {
      for (const q of this.queries.getQueryCache().getAll()) {
        const topics = q.meta?.live;
        // What failed while the server was away is asked again when it is back, whatever it depends on.
        const failed = this.all && q.state.status === "error" && q.state.error instanceof ApiError && q.state.error.temporary;
        if (!failed && !(topics && (this.all || topics.some((t) => this.dirty.has(t))))) continue;
        if (!this.due.has(q.queryHash)) this.due.set(q.queryHash, { since: now });
      }
      this.dirty.clear();
      this.all = false;
    }
    if (document.hidden) return;
    for (const hash of this.due.keys()) {
      const q = this.queries.getQueryCache().get(hash);
      if (!q) {
        this.due.delete(hash);
        continue;
      }
      if (!q.isActive()) {
        this.due.delete(hash);
        q.invalidate();
        continue;
      }
      if (q.state.fetchStatus !== "idle" || now - q.state.dataUpdatedAt < this.pause(q)) continue;
      this.due.delete(hash);
      void this.refetch(q);
    }
    if (this.took.size > 1_000) this.took.clear();
  }

  private pause(q: Query): number {
    return Math.max(q.meta?.every ?? 1_000, 10 * (this.took.get(q.queryHash) ?? 0));
  }

  private async refetch(q: Query) {
    const began = performance.now();
    await this.queries.refetchQueries({ queryKey: q.queryKey, exact: true }, { cancelRefetch: false });
    this.took.set(q.queryHash, performance.now() - began);
  }
}
