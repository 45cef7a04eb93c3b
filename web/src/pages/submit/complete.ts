// Completion of YAML documents by a JSON Schema.
import { isMap, isPair, isScalar, isSeq, parseDocument, type Document, type Node, type Pair } from "yaml";

export interface Schema {
  readonly $ref?: string;
  readonly $defs?: Readonly<Record<string, Schema>>;
  readonly title?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly required?: readonly string[];
  readonly oneOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly pattern?: string;
}

export interface Option {
  readonly label: string;
  readonly kind: "property" | "value";
  readonly info?: string;
}

/** A position in a document: the path of keys and indexes, and whether it is a key or a value. */
export interface Place {
  readonly path: readonly (string | number)[];
  readonly at: "key" | "value";
  /** Keys of the same map, which need no proposal. */
  readonly taken: readonly string[];
  /** Where the word that is being written begins. */
  readonly from: number;
}

const maxDepth = 32;

/** All schemas that hold at a node: refs are resolved and choices are all followed. */
function alternatives(root: Schema, schema: Schema | undefined, depth = 0): Schema[] {
  if (!schema || depth > maxDepth) return [];
  if (schema.$ref) {
    const target = schema.$ref.split("/").slice(1).reduce<unknown>((at, part) => (at as Record<string, unknown> | undefined)?.[part], root);
    // The keywords next to a reference describe this use of it.
    const beside = Object.fromEntries(Object.entries(schema).filter(([key]) => key !== "$ref")) as Schema;
    return [...(Object.keys(beside).length > 0 ? [beside] : []), ...alternatives(root, target as Schema | undefined, depth + 1)];
  }
  const inner = [...(schema.oneOf ?? []), ...(schema.anyOf ?? []), ...(schema.allOf ?? [])].flatMap((s) => alternatives(root, s, depth + 1));
  return [schema, ...inner];
}

/** The schemas at a path. */
export function schemasAt(root: Schema, path: readonly (string | number)[]): Schema[] {
  let at = alternatives(root, root);
  for (const step of path) {
    at = at.flatMap((s) => {
      if (typeof step === "number") return alternatives(root, s.items);
      const property = s.properties?.[step];
      if (property) return alternatives(root, property);
      return typeof s.additionalProperties === "object" ? alternatives(root, s.additionalProperties) : [];
    });
  }
  return at;
}

/** What may be written at a place. */
export function options(root: Schema, place: Place): Option[] {
  const schemas = schemasAt(root, place.path);
  const found = new Map<string, Option>();
  const add = (label: string, kind: Option["kind"], info: string | undefined) => {
    if (label !== "" && !found.has(label)) found.set(label, { label, kind, ...(info && { info }) });
  };
  if (place.at === "key") {
    for (const s of schemas) {
      for (const [name, property] of Object.entries(s.properties ?? {})) {
        if (!place.taken.includes(name)) add(name, "property", describe(root, property));
      }
    }
    return [...found.values()];
  }
  for (const s of schemas) {
    for (const v of s.enum ?? []) add(scalar(v), "value", s.description);
    if (s.const !== undefined) add(scalar(s.const), "value", s.description);
    if (s.type === "boolean") for (const v of ["true", "false"]) add(v, "value", s.description);
    for (const v of s.examples ?? []) add(scalar(v), "value", s.description);
    if (s.default !== undefined) add(scalar(s.default), "value", `${s.description ?? ""} (default)`.trim());
  }
  return [...found.values()];
}

/** A value as YAML writes it; lists and maps are not proposed. */
function scalar(v: unknown): string {
  return typeof v === "string" || typeof v === "number" || typeof v === "boolean" ? String(v) : "";
}

/** What a schema says of itself, in one paragraph. */
export function describe(root: Schema, schema: Schema): string | undefined {
  const texts = alternatives(root, schema).flatMap((s) => s.description ?? []);
  return texts[0];
}

/** The text about the key or value at an offset, for a hover. */
export function hover(root: Schema, text: string, offset: number): { from: number; to: number; text: string; path: string } | undefined {
  const found = nodeAt(parseDocument(text, { keepSourceTokens: false }), offset);
  if (!found) return undefined;
  const info = schemasAt(root, found.path).flatMap((s) => s.description ?? [])[0];
  return info ? { from: found.from, to: found.to, text: info, path: pathText(found.path) } : undefined;
}

export function pathText(path: readonly (string | number)[]): string {
  return path.reduce<string>((text, step) => (typeof step === "number" ? `${text}[${step}]` : text ? `${text}.${step}` : step), "");
}

function nodeAt(doc: Document, offset: number) {
  const visit = (node: unknown, path: (string | number)[]): { path: (string | number)[]; from: number; to: number } | undefined => {
    if (isMap(node)) {
      for (const pair of node.items) {
        const key = pair.key;
        if (!isScalar(key)) continue;
        const inside = [...path, String(key.value)];
        if (covers(key, offset)) return { path: inside, from: key.range?.[0] ?? 0, to: key.range?.[1] ?? 0 };
        const found = visit(pair.value, inside);
        if (found) return found;
      }
    } else if (isSeq(node)) {
      for (const [i, item] of node.items.entries()) {
        const found = visit(item, [...path, i]);
        if (found) return found;
      }
    } else if (isScalar(node) && covers(node, offset)) {
      return { path, from: node.range?.[0] ?? 0, to: node.range?.[1] ?? 0 };
    }
    return undefined;
  };
  return visit(doc.contents, []);
}

function covers(node: Node, offset: number): boolean {
  return node.range !== undefined && node.range !== null && node.range[0] <= offset && offset <= node.range[1];
}

/**
 * Finds the places that the cursor may have in a YAML document, the likelier first: a word after "- " may become a value or the key of a map. A mark
 * replaces the word that is being typed, so that an unfinished document can be parsed. None in a comment.
 */
export function placesAt(text: string, offset: number): Place[] {
  const lineStart = text.lastIndexOf("\n", offset - 1) + 1;
  const before = text.slice(lineStart, offset);
  if (/(^|\s)#/.test(before)) return [];
  const word = /[\w.-]*$/.exec(before)?.[0] ?? "";
  const from = offset - word.length;
  const lineEnd = text.indexOf("\n", offset) === -1 ? text.length : text.indexOf("\n", offset);
  const mark = "zzmusterzz";
  const head = before.slice(0, before.length - word.length);
  const value = /:\s+(\[.*|\{.*)?$/.test(head) || /^\s*-\s+$/.test(head) || /[[,]\s*$/.test(head);
  // What follows the cursor in its line would make the document something else.
  const rest = text.slice(offset, lineEnd).trim();
  const tail = /^[\]},]/.test(rest) ? text.slice(offset) : text.slice(lineEnd);
  return (value ? [mark, `${mark}: x`] : [`${mark}: x`, mark]).flatMap((attempt) => {
    const doc = parseDocument(text.slice(0, from) + attempt + tail, { strict: false, uniqueKeys: false });
    const found = findMark(doc.contents, [], mark);
    return found ? [{ ...found, from }] : [];
  });
}

/** What may be written at an offset, and where the word begins that it replaces. */
export function complete(root: Schema, text: string, offset: number): { from: number; options: Option[] } | undefined {
  for (const place of placesAt(text, offset)) {
    const list = options(root, place);
    if (list.length > 0) return { from: place.from, options: list };
  }
  return undefined;
}

function findMark(node: unknown, path: (string | number)[], mark: string): Omit<Place, "from"> | undefined {
  if (isMap(node)) {
    const keys = node.items.flatMap((p) => (isScalar(p.key) ? [String(p.key.value)] : []));
    for (const pair of node.items) {
      const key = keyOf(pair);
      if (key === mark) return { path, at: "key", taken: keys.filter((k) => k !== mark) };
      const found = findMark(pair.value, [...path, key], mark);
      if (found) return found;
    }
  } else if (isSeq(node)) {
    for (const [i, item] of node.items.entries()) {
      const found = findMark(isPair(item) ? item.value : item, [...path, i], mark);
      if (found) return found;
    }
  } else if (isScalar(node) && String(node.value).includes(mark)) {
    return { path, at: "value", taken: [] };
  }
  return undefined;
}

const keyOf = (pair: Pair) => (isScalar(pair.key) ? String(pair.key.value) : "");
