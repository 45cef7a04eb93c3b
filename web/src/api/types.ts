// Short names of the API's documents.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Job = Schemas["Job"];
export type Task = Schemas["Task"];
export type Worker = Schemas["Worker"];
export type Group = Schemas["Group"];
export type Artifact = Schemas["Artifact"];
export type Attempt = Schemas["Attempt"];
export type AttemptMetrics = Schemas["AttemptMetrics"];
export type Explanation = Schemas["Explanation"];
export type Key = Schemas["Key"];
export type Kind = Schemas["Kind"];
export type Secret = Schemas["Secret"];
export type Spec = Schemas["Spec"];
export type TaskSpec = Schemas["TaskSpec"];
export type Resources = Schemas["Resources"];
export type Sample = Schemas["Sample"];
export type Series = Schemas["Series"];
export type Usage = Schemas["Usage"];
export type ElementSpec = Schemas["ElementSpec"];
export type LogMatches = Schemas["LogMatches"];
export type LogRecord = Schemas["LogRecord"];
export type LogWindow = Schemas["LogWindow"];
export type TaskEvent = Schemas["TaskEvent"];
export type TaskEvents = Schemas["TaskEvents"];

/** Number of tasks in each state. */
export type Counts = Partial<Record<TaskState, number>>;

export const taskStates = [
  "waiting",
  "queued",
  "assigned",
  "running",
  "cancelling",
  "succeeded",
  "failed",
  "timed_out",
  "cancelled",
  "skipped",
] as const;
export type TaskState = (typeof taskStates)[number];
export const finalStates: readonly TaskState[] = ["succeeded", "failed", "timed_out", "cancelled", "skipped"];
export const jobStates = ["waiting", "queued", "running", "succeeded", "failed", "timed_out", "cancelled"] as const;
export type JobState = (typeof jobStates)[number];
export const workerStates = ["pending", "active", "paused", "draining", "unreachable", "gone"] as const;
export type WorkerState = (typeof workerStates)[number];
export type AttemptOutcome = "succeeded" | "failed" | "timed_out" | "cancelled" | "rejected" | "lost";
/** Every state that a badge may show. An attempt whose outcome was not read is unknown. */
export type AnyState = TaskState | WorkerState | AttemptOutcome | "held" | "unknown";

/** The state of a job as people see it: held while nothing of it runs and nothing may start. */
export function shownState(job: Pick<Job, "state" | "held">): AnyState {
  return job.held && (job.state === "waiting" || job.state === "queued") ? "held" : job.state;
}

export function total(counts: Counts): number {
  let n = 0;
  for (const s of taskStates) n += counts[s] ?? 0;
  return n;
}

export function finished(counts: Counts): number {
  let n = 0;
  for (const s of finalStates) n += counts[s] ?? 0;
  return n;
}

/** Whether more attempts of a job have ended than tasks that had any: a skipped task has none. */
export const retried = (counts: Counts, attempts: number): boolean => attempts > finished(counts) - (counts.skipped ?? 0);

export type Overview = Schemas["Overview"];
export type OverviewGPU = Schemas["OverviewGPU"];
export type Attention = Schemas["Attention"];
