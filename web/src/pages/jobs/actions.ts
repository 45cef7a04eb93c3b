import { total, type Counts, type Job } from "@/api/types";

/** How many tasks a retry would queue again. */
export function retriable(counts: Counts): number {
  return (counts.failed ?? 0) + (counts.timed_out ?? 0) + (counts.cancelled ?? 0) + (counts.skipped ?? 0);
}

/** How many tasks have not ended. */
export function alive(counts: Counts): number {
  return total(counts) - retriable(counts) - (counts.succeeded ?? 0);
}

export const canCancel = (j: Job) => alive(j.counts) > 0;
export const canRetry = (j: Job) => retriable(j.counts) > 0;
