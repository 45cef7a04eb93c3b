/** One line of a comparison of two texts. */
export interface DiffLine {
  readonly kind: "same" | "removed" | "added";
  readonly text: string;
  /** Line numbers from 1 in the two texts. */
  readonly before?: number;
  readonly after?: number;
}

/** Beyond this many steps the rest of two texts is shown as replaced: a comparison must end soon. */
const maxSteps = 4_000;

/** Compares two texts line by line with the fewest changes (Myers, "An O(ND) Difference Algorithm", 1986). */
export function diffLines(before: string, after: string): DiffLine[] {
  const a = split(before);
  const b = split(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const lines: DiffLine[] = [];
  const same = (i: number, j: number) => lines.push({ kind: "same", text: a[i] ?? "", before: i + 1, after: j + 1 });
  for (let i = 0; i < start; i++) same(i, i);
  for (const [kind, i, j] of middle(a.slice(start, a.length - end), b.slice(start, b.length - end))) {
    if (kind === "same") same(start + i, start + j);
    else if (kind === "removed") lines.push({ kind, text: a[start + i] ?? "", before: start + i + 1 });
    else lines.push({ kind, text: b[start + j] ?? "", after: start + j + 1 });
  }
  for (let k = end; k > 0; k--) same(a.length - k, b.length - k);
  return lines;
}

const split = (text: string) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

type Edit = [kind: DiffLine["kind"], i: number, j: number];

function middle(a: readonly string[], b: readonly string[]): Edit[] {
  const n = a.length;
  const m = b.length;
  const replace = () => [...a.map((_, i): Edit => ["removed", i, 0]), ...b.map((_, j): Edit => ["added", 0, j])];
  if (n === 0 || m === 0) return replace();
  const most = Math.min(n + m, maxSteps);
  const trace: Int32Array[] = [];
  const v = new Int32Array(2 * most + 3);
  const o = most + 1;
  for (let d = 0; d <= most; d++) {
    // Each step only needs the part of v that it can have touched.
    trace.push(v.slice(o - d - 1, o + d + 2));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (v[o + k - 1] ?? 0) < (v[o + k + 1] ?? 0)) ? (v[o + k + 1] ?? 0) : (v[o + k - 1] ?? 0) + 1;
      let y = x - k;
      while (x < n && y < m && a[x] === b[y]) {
        x++;
        y++;
      }
      v[o + k] = x;
      if (x >= n && y >= m) return back(trace, d, n, m);
    }
  }
  return replace();
}

function back(trace: readonly Int32Array[], steps: number, n: number, m: number): Edit[] {
  const edits: Edit[] = [];
  let x = n;
  let y = m;
  for (let d = steps; d >= 0; d--) {
    const v = trace[d];
    if (!v) break;
    const at = (k: number) => v[k + d + 1] ?? 0;
    const k = x - y;
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const from = down ? k + 1 : k - 1;
    const fx = d === 0 ? 0 : at(from);
    const fy = d === 0 ? 0 : fx - from;
    while (x > fx && y > fy && (d > 0 ? x > (down ? fx : fx + 1) || y > (down ? fy + 1 : fy) : x > 0 && y > 0)) {
      x--;
      y--;
      edits.push(["same", x, y]);
    }
    if (d > 0) {
      if (down) edits.push(["added", 0, --y]);
      else edits.push(["removed", --x, 0]);
    }
  }
  return edits.reverse();
}

/** How many lines were removed and added. */
export function changes(lines: readonly DiffLine[]): { removed: number; added: number } {
  let removed = 0;
  let added = 0;
  for (const l of lines) {
    if (l.kind === "removed") removed++;
    else if (l.kind === "added") added++;
  }
  return { removed, added };
}

/** A part of a comparison: lines, or a number of equal lines that are folded away. */
export type Hunk = { readonly lines: readonly DiffLine[] } | { readonly folded: number; readonly lines: readonly DiffLine[] };

/** Folds runs of equal lines that are more than `context` lines away from a change. */
export function fold(lines: readonly DiffLine[], context = 3): Hunk[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((l, i) => {
    if (l.kind !== "same") near.fill(1, Math.max(0, i - context), i + context + 1);
  });
  const hunks: Hunk[] = [];
  for (let i = 0; i < lines.length; ) {
    let j = i;
    while (j < lines.length && near[j] === near[i]) j++;
    const part = lines.slice(i, j);
    hunks.push(near[i] || part.length < 3 ? { lines: part } : { folded: part.length, lines: part });
    i = j;
  }
  return hunks;
}

/** One value of a document by its path, such as tasks.0.resources.cpus. */
export interface Leaf {
  readonly path: string;
  readonly text: string;
}

/** All values of a JSON document with their paths, in the order of the document. */
export function leaves(value: unknown, path = ""): Leaf[] {
  if (value !== null && typeof value === "object") {
    const entries = Array.isArray(value) ? value.map((v, i) => [String(i), v] as const) : Object.entries(value);
    if (entries.length === 0) return [{ path, text: Array.isArray(value) ? "[]" : "{}" }];
    return entries.flatMap(([k, v]) => leaves(v, path ? `${path}.${k}` : k));
  }
  return [{ path, text: typeof value === "string" ? value : JSON.stringify(value) ?? "" }];
}
