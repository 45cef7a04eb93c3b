import { stringify } from "yaml";

type Doc = Record<string, unknown>;

/** The order in which people write the fields of a job and of a stage; others follow in their order. */
const order = ["name", "project", "priority", "labels", "kind", "needs", "array", "matrix", "sweep", "gang", "image", "files", "run", "script", "input", "python", "container", "env", "secrets", "resources", "where", "inputs", "outputs", "timeout", "queue_timeout", "log_cap", "retries", "kill", "disconnect", "checkpoint", "cache", "notify", "tasks", "signed_by", "signature"];

/** A job's spec as YAML, as a person would write it: known fields in their usual order, what is empty left out. */
export function toYAML(spec: unknown): string {
  return stringify(tidy(spec), { lineWidth: 0, aliasDuplicateObjects: false });
}

function tidy(value: unknown, top = true): unknown {
  if (Array.isArray(value)) return value.map((v) => tidy(v, false));
  if (value === null || typeof value !== "object") return value;
  const doc = value as Doc;
  const keys = Object.keys(doc).filter((k) => !empty(doc[k]));
  const rank = (k: string) => {
    const i = order.indexOf(k);
    return i < 0 ? order.length : i;
  };
  // Only a job and its stages have this order; env and labels keep theirs.
  const sorted = top || "name" in doc || "run" in doc ? keys.map((k, i) => ({ k, i })).sort((a, b) => rank(a.k) - rank(b.k) || a.i - b.i).map((x) => x.k) : keys;
  return Object.fromEntries(sorted.map((k) => [k, tidy(doc[k], false)]));
}

const empty = (v: unknown) => v === null || v === undefined || (Array.isArray(v) && v.length === 0) || (typeof v === "object" && !Array.isArray(v) && Object.keys(v).length === 0);
