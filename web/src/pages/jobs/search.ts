import { jobStates, taskStates, type JobState, type TaskState } from "@/api/types";

// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.

export type Order = "newest" | "oldest";

export interface JobsSearch {
  /** Any of these. */
  state?: JobState[];
  project?: string;
  /** Part of the name. */
  name?: string;
  /** KEY=VALUE; all of these. */
  label?: string[];
  kind?: string;
  owner?: string;
  /** Created since: a duration before now such as 24h, or a date. */
  since?: string;
  until?: string;
  order?: "oldest";
  /** A column, with - in front for descending; sorts the loaded jobs. */
  sort?: string;
}

const text = (v: unknown): string | undefined => {
  const t = typeof v === "number" || typeof v === "boolean" ? String(v) : typeof v === "string" ? v : "";
  return t !== "" && t.length <= 200 ? t : undefined;
};
const list = (v: unknown): string[] => (Array.isArray(v) ? v : v === undefined ? [] : [v]).map(text).filter((t) => t !== undefined);
const only = <T extends string>(v: unknown, all: readonly T[]): T[] => all.filter((s) => list(v).includes(s));
const integer = (v: unknown): number | undefined => {
  const n = typeof v === "number" ? v : typeof v === "string" && v !== "" ? Number(v) : NaN;
  return Number.isSafeInteger(n) && n >= 0 ? n : undefined;
};

/** Leaves out what is undefined or empty: exactOptionalPropertyTypes, and short URLs. */
function present<T extends object>(o: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined && !(Array.isArray(v) && v.length === 0))) as T;
}

export const validateJobs = (s: Record<string, unknown>): JobsSearch =>
  present<JobsSearch>({
    state: only<JobState>(s["state"], jobStates),
    project: text(s["project"]),
    name: text(s["name"]),
    label: list(s["label"]).filter((l) => l.indexOf("=") > 0).slice(0, 20),
    kind: text(s["kind"]),
    owner: text(s["owner"]),
    since: time(s["since"]),
    until: time(s["until"]),
    order: s["order"] === "oldest" ? "oldest" : undefined,
    sort: /^-?[a-z]+$/.test(text(s["sort"]) ?? "") ? text(s["sort"]) : undefined,
  });

const time = (v: unknown) => {
  const t = text(v);
  return t && (/^\d+[mhd]$/.test(t) || !Number.isNaN(Date.parse(t))) ? t : undefined;
};

/** The moment that since and until mean, as the API takes it. */
export function moment(v: string, now: number): string {
  const relative = /^(\d+)([mhd])$/.exec(v);
  if (!relative) return new Date(v).toISOString();
  const unit = { m: 60_000, h: 3_600_000, d: 86_400_000 }[relative[2] ?? "m"] ?? 0;
  return new Date(now - Number(relative[1]) * unit).toISOString();
}

export const jobTabs = ["graph", "timeline", "elements", "tasks", "results", "compare", "spec", "notifications"] as const;
export type JobTab = (typeof jobTabs)[number];

export interface JobSearch {
  /** The part of the page that is shown. */
  tab?: JobTab;
  /** A stage by name: of the elements, tasks and results. */
  stage?: string;
  /** States that are shown. */
  state?: TaskState[];
  /** The element at the cursor of the grid. */
  at?: number;
  /** Other jobs to compare with, separated by commas. */
  with?: string;
  /** How the timeline groups its bars. */
  by?: "task";
  /** How results are shown. */
  view?: "parallel" | "scatter" | "runs";
  sort?: string;
  /** Axes of the scatter plot, and what colours the plots. */
  x?: string;
  y?: string;
  color?: string;
  /** Selected runs: task numbers, separated by commas. */
  runs?: string;
  /** What the spec is compared with: "previous" or nothing. */
  diff?: "previous";
}

const numbers = (v: unknown): string | undefined => {
  const t = text(v);
  return t && /^\d+(,\d+)*$/.test(t) ? t : undefined;
};

export const validateJob = (s: Record<string, unknown>): JobSearch =>
  present<JobSearch>({
    tab: jobTabs.find((t) => t === s["tab"]),
    stage: text(s["stage"]),
    state: only<TaskState>(s["state"], taskStates),
    at: integer(s["at"]),
    with: numbers(s["with"]),
    by: s["by"] === "task" ? "task" : undefined,
    view: (["parallel", "scatter", "runs"] as const).find((v) => v === s["view"]),
    sort: text(s["sort"]),
    x: text(s["x"]),
    y: text(s["y"]),
    color: text(s["color"]),
    runs: numbers(s["runs"]),
    diff: s["diff"] === "previous" ? "previous" : undefined,
  });

export interface CompareSearch {
  /** Jobs, separated by commas. */
  jobs?: string;
}
export const validateCompare = (s: Record<string, unknown>): CompareSearch => present<CompareSearch>({ jobs: numbers(s["jobs"]) });
