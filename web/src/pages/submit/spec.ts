import { isMap, isSeq, parseDocument, type Document } from "yaml";
import type { Schema } from "./complete";

/** Keys and indexes that lead to a value. */
export type Path = readonly (string | number)[];

/** Parses a text to change it: throws if it has errors. */
export function parsed(text: string): Document {
  const doc: Document = parseDocument(text);
  const error = doc.errors[0];
  if (error) throw new Error(`The spec cannot be changed because of an error${error.linePos ? ` in line ${error.linePos[0].line}` : ""}: correct it first`);
  return doc;
}

/** Writes a value at a path of a YAML text, and keeps comments and order. An empty value removes the key. It throws for a text with errors. */
export function setIn(text: string, path: Path, value: unknown): string {
  const doc = parsed(text);
  if (value === undefined) doc.deleteIn(path);
  else doc.setIn(path, doc.createNode(value));
  return doc.toString({ lineWidth: 0 });
}

/** Where the first task of a document is. */
export function taskPath(text: string): Path {
  return tasksOf(parseDocument(text))[0]?.path ?? [];
}

/** Where the tasks of a document are, with their names: flat documents are one task themselves. */
export function tasksOf(doc: Document): { path: Path; name: string }[] {
  const list = isMap(doc.contents) ? doc.get("tasks") : undefined;
  const paths: Path[] = isSeq(list) && list.items.length > 0 ? list.items.map((_, i) => ["tasks", i]) : [[]];
  return paths.map((path, i) => {
    const name = isMap(doc.contents) ? doc.getIn([...path, "name"]) : undefined;
    return { path, name: typeof name === "string" ? name : `task ${i + 1}` };
  });
}

/** One field of a form, from a property of an input's schema. */
export interface Field {
  readonly name: string;
  readonly type: "text" | "number" | "boolean" | "choice" | "json";
  readonly required: boolean;
  readonly about?: string;
  readonly choices?: readonly string[];
  readonly placeholder?: string;
  readonly integer?: boolean;
  readonly min?: number;
  readonly max?: number;
}

/** The fields of a kind's input, those that must be given first. */
export function fieldsOf(schema: Schema | undefined): Field[] {
  const required = new Set(schema?.required ?? []);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, p]): Field => {
    const types = typeof p.type === "string" ? [p.type] : (p.type ?? []);
    const choices = p.enum?.filter((v) => typeof v === "string" || typeof v === "number").map(String);
    const type: Field["type"] = choices && choices.length > 0 ? "choice" : types.length === 1 && (types[0] === "number" || types[0] === "integer") ? "number" : types.length === 1 && types[0] === "boolean" ? "boolean" : types.length === 1 && types[0] === "string" ? "text" : "json";
    return {
      name,
      type,
      required: required.has(name),
      ...(p.description && { about: p.description }),
      ...(choices && choices.length > 0 && { choices }),
      ...(p.default !== undefined && { placeholder: typeof p.default === "string" ? p.default : JSON.stringify(p.default) }),
      ...(types[0] === "integer" && { integer: true }),
      ...(p.minimum !== undefined && { min: p.minimum }),
      ...(p.maximum !== undefined && { max: p.maximum }),
    };
  });
  return [...fields.filter((f) => f.required), ...fields.filter((f) => !f.required)];
}

/** The value that a field's text means; undefined if it is empty; an error if it does not have the field's type. */
export function valueOf(field: Field, text: string): { value?: unknown; error?: string } {
  // A switch that was left alone shows its default, or off.
  if (field.type === "boolean" && text === "" && field.required) return { value: field.placeholder === "true" };
  if (text.trim() === "") return field.required ? { error: "This is needed" } : {};
  if (field.type === "number") {
    const n = Number(text);
    if (!Number.isFinite(n) || (field.integer && !Number.isInteger(n))) return { error: field.integer ? "Write a whole number" : "Write a number" };
    if (field.min !== undefined && n < field.min) return { error: `At least ${field.min}` };
    if (field.max !== undefined && n > field.max) return { error: `At most ${field.max}` };
    return { value: n };
  }
  if (field.type === "boolean") return { value: text === "true" };
  if (field.type !== "json") return { value: text };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    // A text without quotes is used unchanged, unless it looks like JSON.
    return /^\s*[[{"]/.test(text) ? { error: "Write JSON, such as [1, 2] or {\"a\": 1}" } : { value: text };
  }
}
