import { columns } from "./ansi";
import type { Line } from "./buffer";

/** Where lines are: rows before each, and in all. */
export interface Layout {
  /** rows[i] is the number of rows before line i; rows[n] is that of all. */
  readonly rows: Float64Array;
  /** Columns of the longest line. */
  readonly widest: number;
}

const widths = new WeakMap<Line, number>();

export function widthOf(line: Line): number {
  let w = widths.get(line);
  if (w === undefined) {
    w = columns(line.text);
    widths.set(line, w);
  }
  return w;
}

/** Lays out lines in rows of a number of columns; without wrap each has one row. */
export function layOut(lines: readonly Line[], wrap: number | undefined): Layout {
  const rows = new Float64Array(lines.length + 1);
  let sum = 0;
  let widest = 0;
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const w = line ? widthOf(line) : 0;
    if (w > widest) widest = w;
    sum += wrap ? Math.max(1, Math.ceil(w / wrap)) : 1;
    rows[i + 1] = sum;
  }
  return { rows, widest };
}

/** The line of a row. */
export function lineAt(layout: Layout, row: number): number {
  const { rows } = layout;
  let lo = 0;
  let hi = rows.length - 2;
  while (lo < hi) {
    const mid = (lo + hi + 1) >> 1;
    if ((rows[mid] ?? 0) <= row) lo = mid;
    else hi = mid - 1;
  }
  return Math.max(0, lo);
}
