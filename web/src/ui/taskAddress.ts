import type { Job, Task } from "@/api/types";

type Stage = Readonly<Record<string, unknown>>;

const stagesOf = (job: Job | undefined) => (job?.spec?.tasks ?? []) as readonly Stage[];
const hasElements = (s: Stage | undefined) => s !== undefined && [s.array, s.matrix, s.sweep, s.gang].some((x) => x !== undefined && x !== null);

/**
 * The name of a task as the command line writes it: 17_57 for the element of the only array, matrix or gang of a job, 17.train.57 if the job
 * has several, else 17.3. An array has the numbers of its spec, the others count from 0.
 */
export function taskAddress(job: Job | undefined, task: Pick<Task, "id" | "index" | "group" | "element">): string {
  const stages = stagesOf(job);
  const group = job?.groups?.[task.group];
  if (!job || !group || !task.element || !hasElements(stages[group.index])) return task.id;
  const number = stages[group.index]?.matrix || stages[group.index]?.sweep ? String(task.index - group.first) : task.element;
  return stages.filter(hasElements).length === 1 ? `${job.id}_${number}` : `${job.id}.${group.name}.${number}`;
}

/** The id of the task that a text names in a job: 3 or 17.3 by its number, 57 or 17_57 by the element of the only array, matrix or gang. */
export function parseTask(job: Job, text: string): string | undefined {
  const m = /^(?:(\d+)([._]))?(\d{1,10})$/.exec(text.trim());
  if (!m || (m[1] !== undefined && Number(m[1]) !== job.id)) return undefined;
  const n = Number(m[3]);
  const arrays = stagesOf(job).flatMap((s, i) => (hasElements(s) ? [i] : []));
  const stage = arrays[0];
  if (m[2] === "." || arrays.length !== 1 || stage === undefined) return m[2] === "_" ? undefined : `${job.id}.${n}`;
  const group = job.groups?.find((g) => g.index === stage);
  const array = stagesOf(job)[stage]?.array;
  const at = typeof array === "string" ? position(array, n) : n;
  return group && at !== undefined && at < group.size ? `${job.id}.${group.first + at}` : undefined;
}

/** The position of a number in an array such as 0-9,20,30-39:3. */
function position(array: string, n: number): number | undefined {
  let before = 0;
  for (const part of array.split(",")) {
    const m = /^\s*(\d+)\s*(?:-\s*(\d+)\s*(?::\s*(\d+)\s*)?)?$/.exec(part);
    if (!m) return undefined;
    const [first, last, step] = [Number(m[1]), Number(m[2] ?? m[1]), Number(m[3] ?? 1)];
    if (n >= first && n <= last && (n - first) % step === 0) return before + (n - first) / step;
    before += Math.floor((last - first) / step) + 1;
  }
  return undefined;
}
