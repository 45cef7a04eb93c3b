// What of a folder stays at home, as .musterignore says: the form of .gitignore. The command line reads it in the same way (internal/client/ignore.go).

interface Rule {
  /** Of the pattern; "**" matches any number of folders. */
  readonly parts: readonly (RegExp | "**")[];
  readonly negate: boolean;
  readonly folderOnly: boolean;
}

const always = new Set([".git", ".muster"]);

/** Reads an ignore file. The result says whether a path, slash-separated and relative, stays at home; ask for folders before what is in them. */
export function parseIgnore(text: string): (path: string, folder: boolean) => boolean {
  const rules = text.split("\n").flatMap((line) => parseRule(line.trimEnd()) ?? []);
  return (path, folder) => {
    const parts = path.split("/");
    if (always.has(parts[parts.length - 1] ?? "")) return true;
    let ignored = false;
    for (const rule of rules) {
      if (rule.negate === ignored && (folder || !rule.folderOnly) && matches(rule.parts, parts)) ignored = !rule.negate;
    }
    return ignored;
  };
}

function parseRule(line: string): Rule | undefined {
  if (line === "" || line.startsWith("#")) return undefined;
  const negate = line.startsWith("!");
  let pattern = negate ? line.slice(1) : line;
  if (pattern.startsWith("\\")) pattern = pattern.slice(1);
  const folderOnly = pattern.endsWith("/");
  if (folderOnly) pattern = pattern.slice(0, -1);
  const anchored = pattern.includes("/");
  pattern = pattern.replace(/^\/+|\/+$/g, "");
  if (pattern === "") return undefined;
  const parts = pattern.split("/").map((p) => (p === "**" ? p : glob(p)));
  return { parts: anchored ? parts : ["**", ...parts], negate, folderOnly };
}

/** One part of a path: * any text, ? one character, [a-z] one of a class. */
function glob(part: string): RegExp {
  let source = "";
  for (let i = 0; i < part.length; i++) {
    const c = part.charAt(i);
    const end = part.indexOf("]", i + 1);
    if (c === "*") source += "[^/]*";
    else if (c === "?") source += "[^/]";
    else if (c === "[" && end > i) {
      const set = part.slice(i + 1, end).replace(/\\/g, "\\\\");
      source += `[${set}]`;
      i = end;
    } else if (c === "\\" && i + 1 < part.length) source += escaped(part.charAt(++i));
    else source += escaped(c);
  }
  return new RegExp(`^${source}$`);
}

const escaped = (c: string) => c.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");

/** The time is proportional to the product of both lengths: open has the prefixes of parts that the pattern so far matches. */
function matches(pattern: Rule["parts"], parts: readonly string[]): boolean {
  let open = [true, ...parts.map(() => false)];
  pattern.forEach((p, i) => {
    const next = open.map(() => false);
    if (p === "**") {
      let reached = false;
      open.forEach((was, n) => {
        next[n] = reached || (was && i < pattern.length - 1);
        reached ||= was;
      });
    } else {
      for (let n = parts.length; n > 0; n--) next[n] = (open[n - 1] ?? false) && p.test(parts[n - 1] ?? "");
    }
    open = next;
  });
  return open[parts.length] ?? false;
}
