import type { Style } from "./ansi";
import type { Line } from "./buffer";

/** A run of a line that looks the same. */
export interface Piece {
  readonly text: string;
  readonly style: Style | undefined;
  /** It matches what is searched for. */
  readonly mark: boolean;
}

/** Splits a line where its style changes or a match begins or ends. */
export function paint(line: Pick<Line, "text" | "spans">, marks: readonly (readonly [number, number])[]): readonly Piece[] {
  const spans = line.spans ?? [{ text: line.text, style: undefined }];
  if (marks.length === 0) return spans.map((s) => ({ ...s, mark: false }));
  const pieces: Piece[] = [];
  let at = 0;
  let m = 0;
  for (const s of spans) {
    let from = 0;
    while (from < s.text.length) {
      while ((marks[m]?.[1] ?? Infinity) <= at + from) m++;
      const next = marks[m];
      const mark = next !== undefined && next[0] <= at + from;
      const to = Math.min(s.text.length, next ? (mark ? next[1] : next[0]) - at : s.text.length);
      pieces.push({ text: s.text.slice(from, to), style: s.style, mark });
      from = to;
    }
    at += s.text.length;
  }
  return pieces;
}

/** How a style looks in CSS. Colours other than the theme's are drawn nearer to the text's for contrast. */
export function cssOf(style: Style | undefined): Record<string, string | number> | undefined {
  if (!style) return undefined;
  const color = (c: string, share: number) => (/^\d+$/.test(c) ? `var(--ansi-${c})` : `color-mix(in oklab, ${c} ${share}%, var(--mantine-color-text))`);
  let fg = style.fg === undefined ? undefined : color(style.fg, 70);
  let bg = style.bg === undefined ? undefined : /^\d+$/.test(style.bg) ? `color-mix(in srgb, var(--ansi-${style.bg}) 35%, var(--card))` : `color-mix(in srgb, ${style.bg} 35%, var(--card))`;
  if (style.inverse) {
    bg = fg ?? "var(--mantine-color-text)";
    fg = "var(--card)";
  }
  return {
    ...(fg && { color: fg }),
    ...(bg && { background: bg }),
    ...(style.bold && { fontWeight: 700 }),
    ...(style.dim && { opacity: 0.75 }),
    ...(style.italic && { fontStyle: "italic" }),
    ...((style.underline || style.strike) && { textDecoration: [style.underline && "underline", style.strike && "line-through"].filter(Boolean).join(" ") }),
  };
}
