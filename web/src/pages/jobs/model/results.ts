import { between } from "@/ui/format";
import type { Task } from "@/api/types";
import { csv, type Cell } from "./csv";

export type Value = number | string | boolean;

/** One run: an element of a job with what went in and what came out. */
export interface Run {
  readonly id: string;
  readonly task: Task;
  readonly values: ReadonlyMap<string, Value>;
}

export type Source = "about" | "param" | "metric" | "result";

/** A column of the results. Keys are unique: "param:lr", "metric:loss", "result:test.accuracy". */
export interface Field {
  readonly key: string;
  readonly name: string;
  readonly source: Source;
  readonly numeric: boolean;
  /** How many runs have a value. */
  readonly known: number;
  /** Smallest and largest value of a numeric field. */
  readonly min: number;
  readonly max: number;
  /** Whether runs differ in it. */
  readonly varies: boolean;
}

/** Fields of one document at most, and depth of nesting, so that a large result does not make a table without end. */
const maxFields = 200;
const maxDepth = 4;
const maxText = 200;

/**
 * The parameters in the name of an element. A matrix names its values as "lr=0.1,seed=2"; a value may itself hold
 * commas and equals signs, so that axes, if they are known, say where a value ends. An array has its number.
 */
export function parameters(element: string | undefined, axes: readonly string[] = []): [name: string, value: Value][] {
  if (!element) return [];
  if (axes.length > 0) {
    const found: [string, Value][] = [];
    let at = 0;
    for (let i = 0; i < axes.length; i++) {
      const head = `${axes[i]}=`;
      if (!element.startsWith(head, at)) return parameters(element);
      at += head.length;
      const next = axes[i + 1];
      const end = next === undefined ? element.length : element.indexOf(`,${next}=`, at);
      if (end < 0) return parameters(element);
      found.push([axes[i] ?? "", parse(element.slice(at, end))]);
      at = end + 1;
    }
    return found;
  }
  if (!element.includes("=")) return [["index", parse(element)]];
  const found: [string, Value][] = [];
  for (const part of element.split(",")) {
    const eq = part.indexOf("=");
    const last = found[found.length - 1];
    if (eq > 0 && /^[\w.-]+$/.test(part.slice(0, eq))) found.push([part.slice(0, eq), parse(part.slice(eq + 1))]);
    else if (last) last[1] = `${String(last[1])},${part}`;
  }
  return found;
}

function parse(text: string): Value {
  if (text === "true") return true;
  if (text === "false") return false;
  const n = Number(text);
  return text.trim() !== "" && Number.isFinite(n) ? n : text;
}

/** The plain values of a result.json by path: {"test": {"accuracy": 0.9}} has test.accuracy. */
export function flatten(result: unknown): [name: string, value: Value][] {
  const found: [string, Value][] = [];
  const visit = (value: unknown, path: string, depth: number) => {
    if (found.length >= maxFields || value === null || value === undefined) return;
    if (typeof value === "number" || typeof value === "boolean") found.push([path || "result", value]);
    else if (typeof value === "string") found.push([path || "result", value.length > maxText ? `${value.slice(0, maxText)}…` : value]);
    else if (Array.isArray(value)) {
      if (value.length <= 8 && depth < maxDepth) value.forEach((v, i) => visit(v, path ? `${path}.${i}` : String(i), depth + 1));
      else found.push([path || "result", `[${value.length} values]`]);
    } else if (typeof value === "object") {
      if (depth >= maxDepth) found.push([path || "result", "{…}"]);
      else for (const [k, v] of Object.entries(value)) visit(v, path ? `${path}.${k}` : k, depth + 1);
    }
  };
  visit(result, "", 0);
  return found;
}

export function toRun(task: Task, axes: readonly string[]): Run {
  const values = new Map<string, Value>();
  const set = (key: string, v: Value | undefined) => {
    if (v !== undefined) values.set(key, v);
  };
  set("about:task", task.id);
  set("about:stage", task.name);
  set("about:state", task.state);
  for (const [k, v] of parameters(task.element, axes)) values.set(`param:${k}`, v);
  for (const [k, v] of Object.entries(task.metrics ?? {})) values.set(`metric:${k}`, v);
  for (const [k, v] of flatten(task.result)) values.set(`result:${k}`, v);
  set("about:duration", task.finished_at ? between(task.started_at, task.finished_at) : undefined);
  set("about:attempts", task.attempt);
  set("about:cost", task.usage?.cost);
  set("about:energy", task.usage?.energy_wh);
  set("about:cpu", task.usage?.cpu_avg);
  set("about:memory", size(task.usage?.memory_peak));
  set("about:vram", size(task.usage?.vram_peak));
  set("about:worker", task.worker);
  return { id: task.id, task, values };
}

const size = (n: number | string | undefined) => (typeof n === "number" && n > 0 ? n : undefined);

const order: readonly Source[] = ["param", "metric", "result", "about"];

/** All fields of runs: parameters, metrics, results, then what is known of every task. */
export function fieldsOf(runs: readonly Run[]): Field[] {
  const found = new Map<string, { known: number; numeric: boolean; min: number; max: number; first: Value; varies: boolean }>();
  for (const r of runs) {
    for (const [key, v] of r.values) {
      let f = found.get(key);
      if (!f) {
        f = { known: 0, numeric: true, min: Infinity, max: -Infinity, first: v, varies: false };
        found.set(key, f);
      }
      f.known++;
      if (v !== f.first) f.varies = true;
      if (typeof v !== "number") f.numeric = false;
      else if (Number.isFinite(v)) {
        f.min = Math.min(f.min, v);
        f.max = Math.max(f.max, v);
      }
    }
  }
  const fields: Field[] = [];
  for (const [key, f] of found) {
    const source = key.slice(0, key.indexOf(":")) as Source;
    fields.push({ key, source, name: key.slice(key.indexOf(":") + 1), numeric: f.numeric && f.min <= f.max, known: f.known, min: f.min, max: f.max, varies: f.varies });
  }
  return fields.map((f, i) => ({ f, i })).sort((a, b) => order.indexOf(a.f.source) - order.indexOf(b.f.source) || a.i - b.i).map((x) => x.f);
}

/** The number or text that a run is sorted and drawn by. */
export function at(run: Run, key: string): number | string | undefined {
  const v = run.values.get(key);
  return typeof v === "boolean" ? String(v) : v;
}

/** The usual names of metrics that are better if they are lower. */
export function lessIsBetter(name: string): boolean {
  return /loss|error|\berr\b|rmse|mse|mae|perplexity|ppl|latency|duration|cost|energy|memory|vram|fid|\bwer\b|\bcer\b/i.test(name);
}

/** Numbers that count rather than judge. */
function neutral(name: string): boolean {
  return /epoch|step|seed|index|count|samples|iteration|params|batch/i.test(name);
}

/** Whether some of the runs have another value of a field than others, or none. */
export const differs = (f: Field, runs: readonly Run[]): boolean => runs.some((r) => r.values.get(f.key) !== runs[0]?.values.get(f.key));

/** Which of the values of a metric is the best, by its name; -1 if they cannot be judged. */
export function bestOf(name: string, values: readonly unknown[]): number {
  if (neutral(name) || !values.every((v) => v === undefined || typeof v === "number")) return -1;
  const less = lessIsBetter(name);
  let best = -1;
  values.forEach((v, i) => {
    const b = values[best];
    if (typeof v === "number" && (typeof b !== "number" || (less ? v < b : v > b))) best = i;
  });
  return best;
}

/** What the runs are most likely judged by: a varying number that was measured, a result before a metric. */
export function objective(fields: readonly Field[]): Field | undefined {
  const measured = fields.filter((f) => f.numeric && f.varies && (f.source === "result" || f.source === "metric"));
  const likely = (f: Field) => (/acc|f1|score|auc|reward|bleu|val|test|loss|error/i.test(f.name) ? 0 : 1) + (neutral(f.name) || /time/i.test(f.name) ? 4 : 0) + (f.source === "result" ? 0 : 0.5);
  return [...measured].sort((a, b) => likely(a) - likely(b))[0];
}

export function toCSV(runs: readonly Run[], fields: readonly Field[]): string {
  const names = new Map<string, number>();
  for (const f of fields) names.set(f.name, (names.get(f.name) ?? 0) + 1);
  const header = fields.map((f) => ((names.get(f.name) ?? 0) > 1 ? `${f.source}.${f.name}` : f.name));
  return csv(header, runs.map((r) => fields.map((f): Cell => r.values.get(f.key))));
}
