import { workerStates, type WorkerState } from "@/api/types";

/** Besides the table. */
const views = ["cards", "gpus"] as const;

// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.
export interface WorkersSearch {
  /** Opens the dialog Add a worker. */
  add?: boolean;
  view?: (typeof views)[number];
  /** Words that must all be found in name, tags, labels, hardware … */
  q?: string;
  state?: WorkerState;
  /** Only workers that need attention: constrained, avoided, unreachable, outdated, with a quarantined GPU or a disk that fills up. */
  attention?: boolean;
}

export function validateWorkers(s: Record<string, unknown>): WorkersSearch {
  const state = workerStates.find((w) => w === s["state"]);
  const view = views.find((v) => v === s["view"]);
  return {
    ...(s["add"] === true && { add: true }),
    ...(view && { view }),
    ...(typeof s["q"] === "string" && s["q"] !== "" && { q: s["q"] }),
    ...(state && { state }),
    ...(s["attention"] === true && { attention: true }),
  };
}

export const ranges = ["1h", "12h", "7d"] as const;
export type Range = (typeof ranges)[number];

export interface WorkerSearch {
  /** The part of the page that is shown. */
  tab?: "history" | "tasks" | "hardware";
  range?: Range;
}

export function validateWorker(s: Record<string, unknown>): WorkerSearch {
  const range = ranges.find((r) => r === s["range"]);
  const tab = (["history", "tasks", "hardware"] as const).find((t) => t === s["tab"]);
  return { ...(tab && { tab }), ...(range && { range }) };
}
