export type TokenKind = "key" | "text" | "number" | "word" | "comment" | "mark" | "reference" | "plain";
export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
}

/**
 * Colours one line of YAML as toYAML writes it. `block` says that the line belongs to a block scalar, which is plain text.
 */
export function tokens(line: string, block: boolean): Token[] {
  if (block) return references(line, "text");
  const out: Token[] = [];
  const lead = /^(\s*)((?:- )*)/.exec(line);
  let rest = line.slice(lead?.[0].length ?? 0);
  if (lead?.[1]) out.push({ kind: "plain", text: lead[1] });
  if (lead?.[2]) out.push({ kind: "mark", text: lead[2] });
  const key = /^("(?:[^"\\]|\\.)*"|[^\s"'#:][^:#]*?)(:)(?=\s|$)/.exec(rest);
  if (key) {
    out.push({ kind: "key", text: key[1] ?? "" }, { kind: "mark", text: ":" });
    rest = rest.slice(key[0].length);
  }
  if (rest === "") return out;
  const space = /^\s*/.exec(rest)?.[0] ?? "";
  if (space) out.push({ kind: "plain", text: space });
  const value = rest.slice(space.length);
  if (value === "") return out;
  if (value.startsWith("#")) out.push({ kind: "comment", text: value });
  else if (/^-?(\d[\d_]*)(\.\d+)?([eE][+-]?\d+)?$/.test(value)) out.push({ kind: "number", text: value });
  else if (/^(true|false|null|~)$/.test(value)) out.push({ kind: "word", text: value });
  else if (/^[|>][+-]?\d*$/.test(value)) out.push({ kind: "mark", text: value });
  else out.push(...references(value, "text"));
  return out;
}

function references(text: string, kind: TokenKind): Token[] {
  const out: Token[] = [];
  let at = 0;
  for (const m of text.matchAll(/\$\{[^}]*\}/g)) {
    if (m.index > at) out.push({ kind, text: text.slice(at, m.index) });
    out.push({ kind: "reference", text: m[0] });
    at = m.index + m[0].length;
  }
  if (at < text.length) out.push({ kind, text: text.slice(at) });
  return out;
}

/** Which lines of a YAML text belong to block scalars. */
export function blocks(lines: readonly string[]): boolean[] {
  const out: boolean[] = [];
  let indent = -1;
  for (const line of lines) {
    const own = /^\s*/.exec(line)?.[0].length ?? 0;
    if (indent >= 0 && (line.trim() === "" || own > indent)) {
      out.push(true);
      continue;
    }
    indent = -1;
    out.push(false);
    if (/(^|[:-]\s)\s*[|>][+-]?\d*\s*$/.test(line)) indent = own + ((/^\s*((?:- )*)/.exec(line)?.[1] ?? "").length);
  }
  return out;
}
