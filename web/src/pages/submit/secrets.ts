import { isMap, isScalar, isSeq, type Document, type Node, type YAMLMap } from "yaml";
import { parsed, tasksOf, type Path } from "./spec";

/** How a task is given a secret: as the variable of its name, as a file at a path, or both. An absent file is none; an empty path is one that is still missing. */
export interface Use {
  readonly variable: boolean;
  readonly file?: string;
}

/** The secrets of one task of a spec. */
export interface TaskSecrets {
  readonly path: Path;
  readonly name: string;
  /** By the name of the secret. */
  readonly uses: ReadonlyMap<string, Use>;
  /** Entries in another form, such as another variable or the credentials of a registry, which stay as they are. */
  readonly others: number;
}

/** The project of a spec, undefined if it has none, and its tasks with their secrets. It throws for a text with errors. */
export function readSecrets(text: string): { project: string | undefined; tasks: TaskSecrets[] } {
  const doc = parsed(text);
  const project = doc.get("project");
  return {
    project: typeof project === "string" || typeof project === "number" ? String(project) : undefined,
    tasks: tasksOf(doc).map(({ path, name }) => {
      const uses = new Map<string, Use>();
      const sorted = entriesOf(doc, path);
      for (const { name: secret, as, file } of sorted.known) {
        const before = uses.get(secret) ?? { variable: false };
        uses.set(secret, as === "variable" ? { ...before, variable: true } : { ...before, file });
      }
      return { path, name, uses, others: sorted.others.size };
    }),
  };
}

type Entry = { node: Node; name: string } & ({ as: "variable"; file?: undefined } | { as: "file"; file: string });

/** The entries that a form can show, at most one variable and one file of each secret, and those that it cannot. */
function entriesOf(doc: Document, path: Path): { known: Entry[]; others: Set<Node> } {
  const list = doc.getIn([...path, "secrets"], true);
  if (list === undefined || (isScalar(list) && list.value === null)) return { known: [], others: new Set() };
  if (!isSeq<Node>(list)) throw new Error("The field secrets of the spec is not a list: correct it first");
  const known: Entry[] = [];
  const others = new Set<Node>();
  const seen = new Set<string>();
  for (const node of list.items) {
    const entry = entryOf(node);
    const key = entry && `${entry.as} ${entry.name}`;
    if (!entry || seen.has(key ?? "")) {
      others.add(node);
      continue;
    }
    seen.add(key ?? "");
    known.push(entry);
  }
  return { known, others };
}

function entryOf(node: Node): Entry | undefined {
  if (isScalar(node)) return typeof node.value === "string" ? { node, name: node.value, as: "variable" } : undefined;
  if (!isMap(node)) return undefined;
  const { name, env, file, ...rest } = node.toJSON() as Record<string, unknown>;
  if (typeof name !== "string" || Object.keys(rest).length > 0) return undefined;
  if (file === undefined && (env === undefined || env === name)) return { node, name, as: "variable" };
  return typeof file === "string" && env === undefined ? { node, name, as: "file", file } : undefined;
}

/** Writes how a task is given secrets: entries that stay keep their place and comments, entries in another form stay, and those of secrets without a use are removed. */
export function writeSecrets(text: string, path: Path, uses: ReadonlyMap<string, Use>): string {
  const doc = parsed(text);
  const at = [...path, "secrets"];
  const { known } = entriesOf(doc, path);
  const entries = new Map(known.map((e) => [e.node, e]));
  const has = (name: string, as: Entry["as"]) => known.some((e) => e.name === name && e.as === as);
  const list = doc.getIn(at, true);
  const items = isSeq<Node>(list) ? list.items : [];
  const kept = items.filter((node) => {
    const entry = entries.get(node);
    if (!entry) return true;
    const use = uses.get(entry.name);
    if (entry.as === "variable") return use?.variable ?? false;
    if (use?.file === undefined) return false;
    if (use.file !== entry.file) (node as YAMLMap).set("file", use.file);
    return true;
  });
  for (const [name, use] of uses) {
    if (use.variable && !has(name, "variable")) kept.push(doc.createNode(name));
    if (use.file !== undefined && !has(name, "file")) kept.push(doc.createNode({ name, file: use.file }, { flow: true }));
  }
  if (kept.length === 0) doc.deleteIn(at);
  else if (isSeq<Node>(list)) list.items = kept;
  else doc.setIn(at, doc.createNode(kept));
  return doc.toString({ lineWidth: 0 });
}
