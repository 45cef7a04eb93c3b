import { isAbort } from "./abort";
import type { LogMatches } from "@/api/types";
import type { LogQuery } from "../api";

export type SearchLog = (at: { offset?: number; direction: "forward" | "backward"; limit: number }, signal: AbortSignal) => Promise<LogMatches>;

/** Matches that are counted and marked at most. */
export const maxMatches = 2_000;
/** Scans for one match in one direction at most: a bound for a log of hundreds of gigabytes. */
const maxScans = 200;

/** One search in one log: counts its matches from the beginning on, and finds the next one from anywhere. */
export class LogSearch {
  /** Offsets in order. */
  matches: number[] = [];
  scannedTo = 0;
  done = false;
  busy = false;
  error: unknown;
  private controller = new AbortController();

  constructor(
    readonly query: LogQuery,
    private readonly search: SearchLog,
    private readonly changed: () => void,
  ) {}

  /** Counts all matches, or the first ones up to a maximum. */
  async run(): Promise<void> {
    if (this.controller.signal.aborted) this.controller = new AbortController();
    else if (this.busy) return;
    this.busy = true;
    const { signal } = this.controller;
    try {
      while (!signal.aborted && this.matches.length < maxMatches) {
        const found = await this.search({ offset: this.scannedTo, direction: "forward", limit: 500 }, signal);
        if (signal.aborted) return;
        for (const m of found.matches ?? []) if (m.offset > (this.matches.at(-1) ?? -1)) this.matches.push(m.offset);
        this.done = found.done;
        if (found.done || found.scanned_to <= this.scannedTo) {
          this.scannedTo = Math.max(this.scannedTo, found.scanned_to);
          break;
        }
        this.scannedTo = found.scanned_to;
        this.changed();
      }
      this.error = undefined;
    } catch (e) {
      if (!signal.aborted && !isAbort(e)) this.error = e;
    }
    if (signal.aborted) return;
    this.busy = false;
    this.changed();
  }

  /** The first match behind an offset, or the last one before it; undefined if there is none. */
  async next(from: number, backward: boolean): Promise<number | undefined> {
    const known = backward ? this.before(from) : this.behind(from);
    if (known !== undefined) return known;
    const { signal } = this.controller;
    let offset = backward ? from : from + 1;
    for (let n = 0; n < maxScans && !signal.aborted; n++) {
      const found = await this.search({ offset, direction: backward ? "backward" : "forward", limit: 1 }, signal);
      const m = (found.matches ?? []).find((match) => (backward ? match.offset < from : match.offset > from));
      if (m) return m.offset;
      if (found.done || found.scanned_to === offset) return undefined;
      offset = found.scanned_to;
    }
    return undefined;
  }

  /** "3 of 12": the position of an offset among the matches, from 1; 0 if it is not a match. */
  position(offset: number | undefined): number {
    return offset === undefined ? 0 : this.matches.indexOf(offset) + 1;
  }

  stop() {
    this.controller.abort();
  }

  private behind(from: number): number | undefined {
    // Only what was scanned without a gap is known.
    const i = this.matches.findIndex((m) => m > from);
    return i >= 0 && from <= this.scannedTo ? this.matches[i] : undefined;
  }

  private before(from: number): number | undefined {
    if (from > this.scannedTo) return undefined;
    for (let i = this.matches.length - 1; i >= 0; i--) {
      const m = this.matches[i];
      if (m !== undefined && m < from) return m;
    }
    return undefined;
  }
}

/** Where in a line a query matches, for highlighting: pairs of beginning and end. */
export function highlights(text: string, query: LogQuery | undefined): readonly (readonly [number, number])[] {
  if (!query || query.errors || !query.q || text.length > 20_000) return [];
  const found: (readonly [number, number])[] = [];
  if (query.regex) {
    let re: RegExp;
    try {
      re = new RegExp(query.q, query.matchCase ? "g" : "gi");
    } catch {
      return []; // RE2 and JavaScript differ: a pattern that only the server supports has matches without highlights
    }
    for (const m of text.matchAll(re)) {
      if (m[0].length > 0) found.push([m.index, m.index + m[0].length]);
      if (found.length >= 200) break;
    }
    return found;
  }
  const where = query.matchCase ? text : text.toLowerCase();
  const what = query.matchCase ? query.q : query.q.toLowerCase();
  if (where.length !== text.length) return [];
  for (let at = where.indexOf(what); at >= 0 && found.length < 200; at = where.indexOf(what, at + what.length)) found.push([at, at + what.length]);
  return found;
}
