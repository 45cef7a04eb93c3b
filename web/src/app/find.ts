import type { Job, Worker } from "@/api/types";

/** "17", "#17" or "job 17" as a job, "17.3" as a task. */
export function parseId(text: string): { job: number; task?: string } | undefined {
  const m = /^(?:job\s+|task\s+|#)?(\d{1,15})(?:\.(\d{1,9}))?$/i.exec(text.trim());
  if (!m) return undefined;
  const job = Number(m[1]);
  return m[2] === undefined ? { job } : { job, task: `${job}.${Number(m[2])}` };
}

/** Jobs whose name, number, project or label has all words of the text; those whose name begins with it first. */
export function findJobs(jobs: readonly Job[], text: string, most: number): Job[] {
  return rank(jobs, text, most, (j) => [j.name, String(j.id), j.project, ...Object.entries(j.labels ?? {}).map(([k, v]) => `${k}=${v}`)]);
}

/** Some jobs and others, each once; the first ones first. */
export function joined(some: readonly Job[], others: readonly Job[], most: number): Job[] {
  const known = new Set(some.map((j) => j.id));
  return [...some, ...others.filter((j) => !known.has(j.id))].slice(0, most);
}

/** Workers whose name, id or tag has all words of the text. */
export function findWorkers(workers: readonly Worker[], text: string, most: number): Worker[] {
  return rank(workers, text, most, (w) => [w.name, w.id, ...(w.tags ?? [])]);
}

function rank<T>(all: readonly T[], text: string, most: number, fields: (x: T) => string[]): T[] {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const first: T[] = [];
  const rest: T[] = [];
  for (const x of all) {
    const f = fields(x).map((s) => s.toLowerCase());
    if (!wanted.every((w) => f.some((s) => s.includes(w)))) continue;
    if (wanted.length > 0 && f[0]?.startsWith(wanted.join(" "))) first.push(x);
    else rest.push(x);
    if (first.length >= most) break;
  }
  return [...first, ...rest].slice(0, most);
}
