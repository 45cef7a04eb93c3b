import type { TaskState } from "@/api/types";

/** A stage as the graph shows it. Times are milliseconds; absent means that it has not been reached. */
export interface Stage {
  readonly name: string;
  readonly index: number;
  readonly needs: readonly string[];
  readonly kind: string;
  readonly size: number;
  readonly counts: Partial<Record<TaskState, number>>;
  readonly startedAt?: number | undefined;
  readonly finishedAt?: number | undefined;
}

/** Seconds that a stage has run; undefined if it has not started. */
export function ran(stage: Stage, now: number): number | undefined {
  if (stage.startedAt === undefined) return undefined;
  return Math.max(0, ((stage.finishedAt ?? now) - stage.startedAt) / 1000);
}

export interface Path {
  /** Names of stages, first to last. */
  readonly stages: readonly string[];
  /** Seconds of all its stages together. */
  readonly seconds: number;
}

/**
 * The chain of stages that determined when the job ended, or will end: from the stage that ended last (or runs) back, at
 * each step to the needed stage that ended last. That is the path which has to be made shorter for the job to end
 * earlier. Stages that have not started are not part of it. Empty if nothing has started or there is only one stage.
 */
export function criticalPath(stages: readonly Stage[], now: number): Path {
  const byName = new Map(stages.map((s) => [s.name, s]));
  const end = (s: Stage) => (s.startedAt === undefined ? -Infinity : (s.finishedAt ?? now));
  let last: Stage | undefined;
  for (const s of stages) {
    if (s.startedAt === undefined) continue;
    if (!last || end(s) > end(last) || (end(s) === end(last) && s.startedAt > (last.startedAt ?? 0))) last = s;
  }
  const path: Stage[] = [];
  const seen = new Set<string>();
  while (last && !seen.has(last.name)) {
    seen.add(last.name);
    path.unshift(last);
    let before: Stage | undefined;
    for (const name of last.needs) {
      const s = byName.get(name);
      if (s && s.startedAt !== undefined && (!before || end(s) > end(before))) before = s;
    }
    last = before;
  }
  if (stages.length < 2 || path.length === 0) return { stages: [], seconds: 0 };
  return { stages: path.map((s) => s.name), seconds: path.reduce((sum, s) => sum + (ran(s, now) ?? 0), 0) };
}

/** The state of a stage as a whole, by the rule of jobs. */
export function stateOf(counts: Partial<Record<TaskState, number>>): TaskState {
  const n = (s: TaskState) => counts[s] ?? 0;
  const done = n("succeeded") + n("failed") + n("timed_out") + n("cancelled") + n("skipped");
  const live = n("waiting") + n("queued") + n("assigned") + n("running") + n("cancelling");
  if (live > 0) {
    if (n("assigned") + n("running") + n("cancelling") + done > 0) return "running";
    return n("queued") > 0 ? "queued" : "waiting";
  }
  if (n("failed") > 0) return "failed";
  if (n("timed_out") > 0) return "timed_out";
  if (n("cancelled") > 0) return "cancelled";
  if (n("succeeded") > 0) return "succeeded";
  return done > 0 ? "skipped" : "waiting";
}

/** The layer of each stage: one more than the highest of those that it needs. Needs that are unknown or circular count 0. */
export function layers(stages: readonly Pick<Stage, "name" | "needs">[]): Map<string, number> {
  const byName = new Map(stages.map((s) => [s.name, s]));
  const layer = new Map<string, number>();
  const visiting = new Set<string>();
  const visit = (name: string): number => {
    const known = layer.get(name);
    if (known !== undefined) return known;
    const s = byName.get(name);
    if (!s || visiting.has(name)) return -1;
    visiting.add(name);
    let l = 0;
    for (const need of s.needs) l = Math.max(l, visit(need) + 1);
    visiting.delete(name);
    layer.set(name, l);
    return l;
  };
  for (const s of stages) visit(s.name);
  return layer;
}

/** Stages in the order in which they run: by layer, then as the spec has them. */
export function inOrder<S extends Pick<Stage, "name" | "needs" | "index">>(stages: readonly S[]): S[] {
  const layer = layers(stages);
  return [...stages].sort((a, b) => (layer.get(a.name) ?? 0) - (layer.get(b.name) ?? 0) || a.index - b.index);
}

/** The neighbour that an arrow key leads to; left and right follow the edges, up and down stay in the layer. */
export function neighbour(stages: readonly Stage[], from: string, key: string): string | undefined {
  const byName = new Map(stages.map((s) => [s.name, s]));
  const layer = layers(stages);
  if (key === "ArrowLeft") return byName.get(from)?.needs.find((n) => byName.has(n));
  if (key === "ArrowRight") return stages.find((s) => s.needs.includes(from))?.name;
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const peers = stages.filter((s) => layer.get(s.name) === layer.get(from));
  const i = peers.findIndex((s) => s.name === from);
  return peers[i + (key === "ArrowUp" ? -1 : 1)]?.name;
}
