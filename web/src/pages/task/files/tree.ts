import type { Artifact } from "@/api/types";

export interface Folder {
  readonly name: string;
  readonly path: string;
  readonly folders: readonly Folder[];
  readonly files: readonly Artifact[];
  /** Of all files in it. */
  readonly size: number;
  readonly count: number;
}

const collator = new Intl.Collator("en", { numeric: true });

/** Artifacts as a tree of folders, sorted, numbers in names by value. */
export function treeOf(artifacts: readonly Artifact[], path = ""): Folder {
  const folders = new Map<string, Artifact[]>();
  const files: Artifact[] = [];
  for (const a of artifacts) {
    const rest = a.name.slice(path.length);
    const slash = rest.indexOf("/");
    if (slash < 0) files.push(a);
    else {
      const name = rest.slice(0, slash);
      const list = folders.get(name);
      if (list) list.push(a);
      else folders.set(name, [a]);
    }
  }
  const below = [...folders].sort(([a], [b]) => collator.compare(a, b)).map(([name, of]) => treeOf(of, `${path}${name}/`));
  files.sort((a, b) => collator.compare(a.name, b.name));
  return {
    name: path.slice(0, -1).split("/").at(-1) ?? "",
    path,
    folders: below,
    files,
    size: files.reduce((n, f) => n + f.size, 0) + below.reduce((n, f) => n + f.size, 0),
    count: files.length + below.reduce((n, f) => n + f.count, 0),
  };
}
