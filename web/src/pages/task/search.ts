// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.
export const taskTabs = ["log", "metrics", "artifacts", "attempts", "environment", "events"] as const;
export type TaskTab = (typeof taskTabs)[number];

export interface TaskSearch {
  /** The part of the page that is shown; default: what matters most in the state of the task. */
  tab?: TaskTab;
  /** The attempt whose log, charts and artifacts are shown; default: the last one. */
  attempt?: number;
  /** An offset in the log: the line that is marked. */
  at?: number;
  /** What is searched for in the log. */
  q?: string;
  /** q is a regular expression. */
  regex?: true;
  /** Upper and lower case differ. */
  case?: true;
  stream?: "stdout" | "stderr";
  /** A part of the names of the metrics that have charts. */
  metric?: string;
  /** The artifact that is previewed. */
  file?: string;
}

const natural = (v: unknown, least: number) => (typeof v === "number" && Number.isSafeInteger(v) && v >= least ? v : undefined);

export const validateTask = (s: Record<string, unknown>): TaskSearch => {
  const tab = taskTabs.find((t) => t === s["tab"]);
  const attempt = natural(s["attempt"], 1);
  const at = natural(s["at"], 0);
  const q = typeof s["q"] === "string" || typeof s["q"] === "number" ? String(s["q"]).slice(0, 1000) : "";
  const metric = typeof s["metric"] === "string" || typeof s["metric"] === "number" ? String(s["metric"]).slice(0, 200) : "";
  const stream = s["stream"] === "stdout" || s["stream"] === "stderr" ? s["stream"] : undefined;
  const file = typeof s["file"] === "string" ? s["file"] : typeof s["file"] === "number" ? String(s["file"]) : undefined;
  return {
    ...(tab && { tab }),
    ...(attempt !== undefined && { attempt }),
    ...(at !== undefined && { at }),
    ...(q && { q }),
    ...(s["regex"] === true && { regex: true }),
    ...(s["case"] === true && { case: true }),
    ...(stream && { stream }),
    ...(metric && { metric }),
    ...(file && { file }),
  };
};
