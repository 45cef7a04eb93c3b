/** The first rows of a table in text. */
export interface CsvTable {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** There are more rows than these. */
  readonly more: boolean;
}

/** The separator that most of the first lines agree in. */
export function separatorOf(text: string): string {
  const lines = text.slice(0, 10_000).split(/\r?\n/, 6).filter((l) => l !== "");
  let best = ",";
  let most = 0;
  for (const s of [",", "\t", ";", "|"]) {
    const counts = lines.map((l) => outsideQuotes(l, s));
    const least = Math.min(...counts);
    if (lines.length > 0 && least > most) {
      most = least;
      best = s;
    }
  }
  return best;
}

function outsideQuotes(line: string, s: string): number {
  let n = 0;
  let quoted = false;
  for (const c of line) {
    if (c === '"') quoted = !quoted;
    else if (c === s && !quoted) n++;
  }
  return n;
}

/** Reads the first rows (RFC 4180; any separator). If the text is only the head of a file, its last row is left out. */
export function parseCsv(text: string, whole: boolean, maxRows: number, separator = separatorOf(text)): CsvTable {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let i = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let quoted = false;
  let more = false;
  const endRow = () => {
    row.push(cell);
    cell = "";
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  };
  for (; i < text.length; i++) {
    const c = text.charAt(i);
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text.charAt(i + 1) === '"') {
        cell += '"';
        i++;
      } else quoted = false;
    } else if (c === '"' && cell === "") quoted = true;
    else if (c === separator) {
      row.push(cell);
      cell = "";
    } else if (c === "\n" || c === "\r") {
      if (c === "\r" && text.charAt(i + 1) === "\n") i++;
      endRow();
      if (rows.length > maxRows) {
        more = true;
        break;
      }
    } else cell += c;
  }
  if (!more && (cell !== "" || row.length > 0)) {
    if (whole) endRow();
    else more = true;
  }
  if (rows.length > maxRows + 1) rows.length = maxRows + 1;
  return { header: rows[0] ?? [], rows: rows.slice(1), more: more || !whole };
}
