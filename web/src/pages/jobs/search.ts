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

const text = (v: unknown, most = 200): string | undefined => {
  const t = typeof v === "number" || typeof v === "boolean" ? String(v) : typeof v === "string" ? v : "";
  return t !== "" && t.length <= most ? t : undefined;
};
const list = (v: unknown): string[] => (Array.isArray(v) ? v : v === undefined ? [] : [v]).map((t) => text(t)).filter((t) => t !== undefined);
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

/** An end of a range; null leaves it open. Texts have their order in the alphabet, with numbers in them in theirs. */
export type Bound = number | string | null;
export type Range = readonly [low: Bound, high: Bound];
/** Ranges of values by the key of their field. */
export type Ranges = Readonly<Record<string, Range>>;

/** How the graph of stages, results, and the spec are shown. */
const jobViews = ["graph", "list", "parallel", "scatter", "runs", "resolved"] as const;

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
  /** What is seen of the timeline: times in milliseconds, FROM-TO. */
  span?: string;
  /** How the tab shows what it has. */
  view?: (typeof jobViews)[number];
  sort?: string;
  /** Axes of the scatter plot, and what colours the plots. */
  x?: string;
  y?: string;
  color?: string;
  /** Axes of the parallel coordinates. */
  axes?: string[];
  /** What results are narrowed to. */
  ranges?: Ranges;
  /** Selected runs: task numbers, as 0-9,12. */
  runs?: string;
  /** The metric over which the curves of selected runs are drawn instead of the time. */
  over?: string;
  /** What the spec is compared with: "previous" or nothing. */
  diff?: "previous";
}

const numbers = (v: unknown): string | undefined => {
  const t = text(v);
  return t && /^\d+(,\d+)*$/.test(t) ? t : undefined;
};

/** Length of a list of task numbers in a URL at most. */
export const maxSpans = 6_000;
const spans = (v: unknown): string | undefined => {
  const t = text(v, maxSpans);
  return t && /^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(t) ? t : undefined;
};

const bound = (v: unknown): v is Bound => v === null || (typeof v === "number" && Number.isFinite(v)) || (typeof v === "string" && v.length <= 200);

function ranges(v: unknown): Ranges | undefined {
  if (typeof v !== "object" || v === null) return undefined;
  const found = Object.entries(v).filter((e): e is [string, [Bound, Bound]] => {
    const range: unknown = e[1];
    return e[0].length <= 200 && Array.isArray(range) && range.length === 2 && range.every(bound) && range.some((b) => b !== null);
  });
  return found.length > 0 ? Object.fromEntries(found.slice(0, 20)) : undefined;
}

export const validateJob = (s: Record<string, unknown>): JobSearch =>
  present<JobSearch>({
    tab: jobTabs.find((t) => t === s["tab"]),
    stage: text(s["stage"]),
    state: only<TaskState>(s["state"], taskStates),
    at: integer(s["at"]),
    with: numbers(s["with"]),
    by: s["by"] === "task" ? "task" : undefined,
    span: /^\d{1,15}-\d{1,15}$/.test(text(s["span"]) ?? "") ? text(s["span"]) : undefined,
    view: jobViews.find((v) => v === s["view"]),
    sort: text(s["sort"]),
    x: text(s["x"]),
    y: text(s["y"]),
    color: text(s["color"]),
    axes: list(s["axes"]).slice(0, 20),
    ranges: ranges(s["ranges"]),
    runs: spans(s["runs"]),
    over: text(s["over"]),
    diff: s["diff"] === "previous" ? "previous" : undefined,
  });

export interface CompareSearch {
  /** Jobs, separated by commas. */
  jobs?: string;
}
export const validateCompare = (s: Record<string, unknown>): CompareSearch => present<CompareSearch>({ jobs: numbers(s["jobs"]) });
