import type { Job, Task } from "@/api/types";
import { leaves } from "./diff";
import { fieldsOf, lessIsBetter, toRun, type Run } from "./results";

/** One line of a comparison of jobs: a value for each. */
export interface Row {
  readonly name: string;
  readonly values: readonly (string | number | undefined)[];
  readonly differs: boolean;
}

/** Rows of one comparison at most. */
export const maxRows = 500;

/** The fields of specs that are not the same in all jobs. Stages are matched by their names, not by their positions. */
export function specRows(specs: readonly (Job["spec"] | undefined)[]): { rows: Row[]; same: number } {
  const documents = specs.map((s) => {
    if (!s) return new Map<string, string>();
    const { tasks, ...job } = s as Record<string, unknown> & { tasks?: readonly { name?: string }[] };
    const stages = Object.fromEntries((tasks ?? []).map((t, i) => [t.name ?? `stage-${i + 1}`, { ...t, name: undefined }]));
    return new Map(leaves({ ...job, ...stages }).filter((l) => l.text !== "" && l.text !== "{}" && l.text !== "[]" && l.text !== "null").map((l) => [l.path, l.text]));
  });
  const paths = [...new Set(documents.flatMap((d) => [...d.keys()]))];
  const rows = paths.map((name) => {
    const values = documents.map((d) => d.get(name));
    return { name, values, differs: values.some((v) => v !== values[0]) };
  });
  const differing = rows.filter((r) => r.differs);
  return { rows: differing.slice(0, maxRows), same: rows.length - differing.length };
}

/** The results of jobs by stage: values of a stage with one task, the best and the mean of one with many. */
export function resultRows(jobs: readonly { readonly tasks: readonly Task[] }[]): Row[] {
  const summaries = jobs.map(({ tasks }) => {
    const stages = new Map<string, Run[]>();
    for (const t of tasks) {
      const list = stages.get(t.name);
      const run = toRun(t, []);
      if (list) list.push(run);
      else stages.set(t.name, [run]);
    }
    const values = new Map<string, string | number>();
    for (const [stage, runs] of stages) {
      for (const f of fieldsOf(runs)) {
        if (f.source !== "result" && f.source !== "metric") continue;
        const name = `${stage} · ${f.name}`;
        // A result of the same name says the same as the metric, but finally.
        if (f.source === "metric" && values.has(name)) continue;
        if (runs.length === 1) {
          const v = runs[0]?.values.get(f.key);
          values.set(name, typeof v === "boolean" ? String(v) : (v ?? ""));
        } else if (f.numeric) {
          const numbers = runs.map((r) => r.values.get(f.key)).filter((v) => typeof v === "number");
          values.set(`${stage} · ${f.name}, best`, lessIsBetter(f.name) ? f.min : f.max);
          values.set(`${stage} · ${f.name}, mean`, numbers.reduce((a, b) => a + b, 0) / numbers.length);
        }
      }
    }
    return values;
  });
  const names = [...new Set(summaries.flatMap((s) => [...s.keys()]))].slice(0, maxRows);
  return names.map((name) => {
    const values = summaries.map((s) => s.get(name));
    return { name, values, differs: values.some((v) => v !== values[0]) };
  });
}

/** Job numbers in a text such as "12, 15": each once, without `not`. */
export function parseJobs(text: string, not?: number): number[] {
  const found = [...text.matchAll(/\d+/g)].map((m) => Number(m[0])).filter((n) => Number.isSafeInteger(n) && n > 0 && n !== not);
  return [...new Set(found)].slice(0, 8);
}
