/** A value of a cell; objects are written as JSON. */
export type Cell = string | number | boolean | null | undefined | object;

/** A table as CSV (RFC 4180). Texts that a spreadsheet would take for a formula get an apostrophe. */
export function csv(header: readonly string[], rows: Iterable<readonly Cell[]>): string {
  const lines = [header.map(field).join(",")];
  for (const r of rows) lines.push(r.map(field).join(","));
  return lines.join("\r\n") + "\r\n";
}

function field(v: Cell): string {
  if (v === null || v === undefined) return "";
  if (typeof v === "number") return Number.isFinite(v) ? String(v) : "";
  let text = typeof v === "object" ? JSON.stringify(v) : String(v);
  if (typeof v === "string" && /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text))) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Saves text as a file of the user. */
export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A name for a file, of letters, digits, dots, dashes. */
export function fileName(...parts: readonly (string | number)[]): string {
  return parts.join("-").replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 120);
}
