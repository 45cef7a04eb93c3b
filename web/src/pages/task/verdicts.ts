import type { Explanation } from "@/api/types";

export type Verdict = NonNullable<NonNullable<Explanation["workers"]>[number]>;

export interface VerdictGroup {
  /** The first filter that these workers fail; "" if they fit. */
  readonly filter: string;
  readonly fits: boolean;
  readonly workers: readonly Verdict[];
}

/** Groups workers by the filter that they fail, in the order of the answer, which has the nearest ones first. */
export function groupVerdicts(verdicts: readonly Verdict[]): readonly VerdictGroup[] {
  const groups = new Map<string, Verdict[]>();
  for (const v of verdicts) {
    const filter = v.fits ? "" : (v.filter ?? "other");
    const group = groups.get(filter);
    if (group) group.push(v);
    else groups.set(filter, [v]);
  }
  return [...groups].map(([filter, workers]) => ({ filter, fits: filter === "", workers }));
}

// One entry for each filter of the scheduler: see internal/placement/filter.go.
const texts: Readonly<Record<string, string>> = {
  "": "Fits",
  state: "Takes no tasks now",
  kind: "Does not offer the kind of the task",
  engine: "Has no container engine that works",
  features: "Cannot do what the task asks for",
  project: "Serves other projects",
  tags: "Lacks a tag",
  not: "Has a tag that is excluded",
  workers: "Is not one of the chosen workers",
  price: "Costs too much",
  owner: "Its owner does not allow it",
  heartbeat: "Sends heartbeats too rarely",
  "gpu vendor": "Has GPUs of another vendor",
  "gpu model": "Has other GPU models",
  "max tasks": "Runs as many tasks as it may",
  slots: "Has no free slot",
  cpus: "Has too few free CPUs",
  memory: "Has too little free memory",
  disk: "Has too little free disk",
  gpus: "Has too few free GPUs, or too small ones",
  kept: "Is reserved for another task",
  rejected: "Refused the task a moment ago",
  failed: "The task failed there before",
};

/** What workers that fail a filter have in common. */
export function filterText(filter: string): string {
  return texts[filter] ?? filter.replaceAll("_", " ");
}
