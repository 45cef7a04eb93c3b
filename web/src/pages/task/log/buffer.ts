import type { LogRecord, LogWindow } from "@/api/types";
import { plainLine, type Span, type Style, TerminalLine } from "./ansi";

export type Stream = LogRecord["stream"];

/** A displayed line. A changed line is a new object. */
export interface Line {
  /** Of its first record. It tells lines apart together with part. */
  readonly offset: number;
  /** A record may hold several lines: which one of it. */
  readonly part: number;
  readonly stream: Stream;
  readonly at: string;
  readonly text: string;
  readonly spans: readonly Span[] | undefined;
}

/** What is kept at most: characters and lines. */
export interface Bounds {
  readonly chars: number;
  readonly lines: number;
}

export const usualBounds: Bounds = { chars: 4_000_000, lines: 20_000 };

const utf8 = new TextDecoder();

export function textOf(r: LogRecord): string {
  if (r.text !== undefined) return r.text;
  if (r.bytes === undefined) return "";
  return utf8.decode(Uint8Array.from(atob(r.bytes), (c) => c.charCodeAt(0)));
}

/** Makes lines of records that follow each other. */
class Assembler {
  readonly lines: Line[] = [];
  private line: TerminalLine | undefined;
  private head: { offset: number; part: number; stream: Stream; at: string } | undefined;
  private readonly styles = new Map<Stream, Style | undefined>();

  /** Whether the last line has no end yet. */
  get open(): boolean {
    return this.head !== undefined;
  }

  add(r: LogRecord) {
    const text = textOf(r);
    if (this.head && this.head.stream !== r.stream) this.close();
    let from = 0;
    let part = 0;
    while (from < text.length) {
      const feed = text.indexOf("\n", from);
      const to = feed < 0 ? text.length : feed;
      // A line that ends with \r\n is not one that returns to its beginning.
      const piece = text.slice(from, feed > from && text.charCodeAt(feed - 1) === 13 ? feed - 1 : to);
      const whole = !this.head && feed >= 0 ? plainLine(piece, this.styles.get(r.stream)) : undefined;
      if (whole) {
        this.styles.set(r.stream, whole.style);
        this.lines.push({ offset: r.offset, part: part++, stream: r.stream, at: r.at, text: whole.text, spans: whole.spans });
        from = feed + 1;
        continue;
      }
      if (!this.head) {
        this.head = { offset: r.offset, part, stream: r.stream, at: r.at };
        this.line = new TerminalLine(this.styles.get(r.stream));
        this.lines.push({ ...this.head, text: "", spans: undefined });
      }
      this.feed(piece, r, part);
      if (feed < 0) break;
      this.close();
      from = feed + 1;
      part++;
    }
    this.show();
  }

  private feed(piece: string, r: LogRecord, part: number) {
    let rest = piece;
    // Long lines are broken, so that one row never has a megabyte.
    while (this.line && rest.length > 8192) {
      const to = (rest.charCodeAt(8191) & 0xfc00) === 0xd800 ? 8191 : 8192; // not within a character
      this.line.feed(rest.slice(0, to));
      rest = rest.slice(to);
      if (this.line.full) this.breakLine(r, part);
    }
    this.line?.feed(rest);
    if (this.line?.full) this.breakLine(r, part);
  }

  private breakLine(r: LogRecord, part: number) {
    const style = this.line?.style;
    this.close();
    this.head = { offset: r.offset, part: part + this.lines.length / 1e6, stream: r.stream, at: r.at };
    this.line = new TerminalLine(style);
    this.lines.push({ ...this.head, text: "", spans: undefined });
  }

  private show() {
    if (this.head && this.line) this.lines[this.lines.length - 1] = { ...this.head, ...this.line.render() };
  }

  private close() {
    this.show();
    if (this.head && this.line) this.styles.set(this.head.stream, this.line.style);
    this.head = undefined;
    this.line = undefined;
  }
}

/** The part of a log that is in memory: a run of lines between two offsets. */
export class LogBuffer {
  private assembler = new Assembler();
  /** Changes whenever the lines do. */
  version = 0;
  /** Bytes of the log, as the server last said. */
  size = 0;
  /** Where the part begins and ends. */
  first = 0;
  last = 0;
  /** The part reaches the end of a log that does not grow any more. */
  done = false;
  private chars = 0;

  constructor(readonly bounds: Bounds = usualBounds) {}

  get lines(): readonly Line[] {
    return this.assembler.lines;
  }

  /** Whether the part reached the end of the log when the server was last asked. */
  get atEnd(): boolean {
    return this.last >= this.size || this.done;
  }

  /** Begins again with a window. */
  reset(w: LogWindow) {
    this.assembler = new Assembler();
    this.chars = 0;
    this.first = w.first;
    this.last = w.first;
    this.done = false;
    this.append(w);
  }

  /** Adds a window that begins where the part ends, and drops lines at the beginning if there are too many. */
  append(w: LogWindow) {
    this.size = Math.max(w.size, w.last);
    // The last line is counted again if it continues.
    const from = this.lines.length - (this.assembler.open ? 1 : 0);
    if (this.assembler.open) this.chars -= this.lines[from]?.text.length ?? 0;
    for (const r of w.records ?? []) if (r.offset >= this.last) this.assembler.add(r);
    this.last = Math.max(this.last, w.last);
    this.done = w.done;
    for (let i = from; i < this.lines.length; i++) this.chars += this.lines[i]?.text.length ?? 0;
    this.trimStart();
    this.version++;
  }

  /** Adds a window that ends where the part begins, and drops lines at the end if there are too many. */
  prepend(w: LogWindow) {
    this.size = Math.max(this.size, w.size);
    const assembler = new Assembler();
    for (const r of w.records ?? []) if (r.offset < this.first) assembler.add(r);
    this.assembler.lines.unshift(...assembler.lines);
    for (const l of assembler.lines) this.chars += l.text.length;
    this.first = Math.min(this.first, w.first);
    this.trimEnd();
    this.version++;
  }

  private trimStart() {
    const lines = this.assembler.lines;
    let n = 0;
    while (n < lines.length - 1 && (lines.length - n > this.bounds.lines || this.chars > this.bounds.chars)) this.chars -= lines[n++]?.text.length ?? 0;
    if (n === 0) return;
    // Lines of one record stay together, because the record is what can be loaded again.
    while (n < lines.length - 1 && lines[n]?.offset === lines[n - 1]?.offset) this.chars -= lines[n++]?.text.length ?? 0;
    lines.splice(0, n);
    this.first = lines[0]?.offset ?? this.last;
  }

  private trimEnd() {
    const lines = this.assembler.lines;
    let n = lines.length;
    while (n > 1 && (n > this.bounds.lines || this.chars > this.bounds.chars)) this.chars -= lines[--n]?.text.length ?? 0;
    if (n === lines.length) return;
    while (n > 1 && lines[n]?.offset === lines[n - 1]?.offset) this.chars -= lines[--n]?.text.length ?? 0;
    this.last = lines[n]?.offset ?? this.last;
    this.done = false;
    // What follows is loaded again, so the last line that is kept is a whole one.
    const kept = new Assembler();
    kept.lines.push(...lines.slice(0, n));
    this.assembler = kept;
  }

  /** The index of the line that holds an offset, or that follows it. */
  indexOf(offset: number): number {
    const lines = this.lines;
    let lo = 0;
    let hi = lines.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if ((lines[mid]?.offset ?? 0) <= offset) lo = mid + 1;
      else hi = mid;
    }
    let i = Math.max(0, lo - 1);
    while (i > 0 && lines[i - 1]?.offset === lines[i]?.offset) i--;
    return i;
  }

  /** Whether an offset is in the part. */
  has(offset: number): boolean {
    return this.lines.length > 0 && offset >= this.first && offset < this.last;
  }
}
