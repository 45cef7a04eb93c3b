// What a terminal would show of one line of output: colours, carriage returns of progress bars, and nothing that is not text.

/** How text looks. Colours are "0" to "15" for those of the theme, else a CSS colour. */
export interface Style {
  readonly fg?: string;
  readonly bg?: string;
  readonly bold?: boolean;
  readonly dim?: boolean;
  readonly italic?: boolean;
  readonly underline?: boolean;
  readonly strike?: boolean;
  readonly inverse?: boolean;
}

/** A run of text of one style; undefined is the plain one. */
export interface Span {
  readonly text: string;
  readonly style: Style | undefined;
}

/** A line has this many characters at most; what follows begins another line. */
export const maxCells = 16_384;
/** A line that was overwritten by carriage returns is replayed from this many of them on. */
const maxReturns = 64;

// eslint-disable-next-line no-control-regex -- control characters are what it looks for
const control = /[\u0000-\u001f\u007f-\u009f]/g;

// eslint-disable-next-line no-control-regex -- colour sequences
const sgr = /\u001b\[([\d;:]*)m/g;

/**
 * A whole line of text and colours only, as most are, without replaying it character by character; undefined if it has
 * other control characters.
 */
export function plainLine(raw: string, start: Style | undefined): { text: string; spans: readonly Span[] | undefined; style: Style | undefined } | undefined {
  if (raw.length > maxCells) return undefined;
  control.lastIndex = 0;
  if (!control.test(raw)) return { text: raw, spans: start && raw !== "" ? [{ text: raw, style: start }] : undefined, style: start };
  const spans: Span[] = [];
  let style = start;
  let text = "";
  let from = 0;
  const add = (to: number): boolean => {
    if (to === from) return true;
    const part = raw.slice(from, to);
    control.lastIndex = 0;
    if (control.test(part)) return false;
    const last = spans[spans.length - 1];
    if (last && sameStyle(last.style, style)) spans[spans.length - 1] = { text: last.text + part, style };
    else spans.push({ text: part, style });
    text += part;
    return true;
  };
  sgr.lastIndex = 0;
  for (let m = sgr.exec(raw); m; m = sgr.exec(raw)) {
    if (!add(m.index)) return undefined;
    style = applySGR(style, m[1] ?? "");
    from = sgr.lastIndex;
  }
  if (!add(raw.length)) return undefined;
  return { text, spans: spans.some((s) => s.style) ? spans : undefined, style };
}

/** A line that a program is still writing. */
export class TerminalLine {
  private chars: string[] = [];
  private styles: (Style | undefined)[] = [];
  private column = 0;
  /** The style of what comes next; it carries over to the next line. */
  style: Style | undefined;
  /** Characters of an incomplete escape sequence. */
  private rest = "";

  constructor(style?: Style) {
    this.style = style;
  }

  get full(): boolean {
    return this.chars.length >= maxCells;
  }

  /** Takes output without a line feed. */
  feed(input: string) {
    let text = this.rest + input;
    this.rest = "";
    text = skipOverwritten(text);
    let from = 0;
    while (from < text.length) {
      control.lastIndex = from;
      const at = control.test(text) ? control.lastIndex - 1 : -1;
      if (at < 0) {
        this.put(text.slice(from));
        return;
      }
      if (at > from) this.put(text.slice(from, at));
      const c = text.charCodeAt(at);
      from = at + 1;
      switch (c) {
        case 0x0d:
          this.column = 0;
          break;
        case 0x08:
          this.column = Math.max(0, this.column - 1);
          break;
        case 0x09:
          this.put(" ".repeat(8 - (this.column % 8)));
          break;
        case 0x07:
          break;
        case 0x9b:
        case 0x1b: {
          const end = this.escape(text, at, c === 0x9b);
          if (end < 0) {
            // A sequence that never ends would swallow the output.
            if (text.length - at < 512) this.rest = text.slice(at);
            else this.put(picture(c));
            if (this.rest) return;
          } else from = end;
          break;
        }
        default:
          this.put(picture(c));
      }
    }
  }

  /** The line so far; undefined spans mean plain text. */
  render(): { text: string; spans: readonly Span[] | undefined } {
    const text = this.chars.join("");
    if (this.styles.every((s) => s === undefined)) return { text, spans: undefined };
    const spans: Span[] = [];
    let from = 0;
    for (let i = 1; i <= this.chars.length; i++) {
      if (i < this.chars.length && sameStyle(this.styles[i], this.styles[from])) continue;
      spans.push({ text: this.chars.slice(from, i).join(""), style: this.styles[from] });
      from = i;
    }
    return { text, spans };
  }

  private put(text: string) {
    for (const ch of text) {
      if (this.column >= maxCells) return;
      while (this.chars.length < this.column) {
        this.chars.push(" ");
        this.styles.push(undefined);
      }
      this.chars[this.column] = ch;
      this.styles[this.column] = this.style;
      this.column++;
    }
  }

  // Handles an escape sequence that begins at a position, and returns the position after it, or -1 if its end is missing.
  private escape(text: string, at: number, csi: boolean): number {
    let i = at + 1;
    if (!csi) {
      if (i >= text.length) return -1;
      const kind = text.charAt(i);
      if (kind === "]" || kind === "P" || kind === "X" || kind === "^" || kind === "_") return endOfString(text, i + 1);
      if (kind !== "[") return /[ #%()*+\-./]/.test(kind) ? (i + 1 < text.length ? i + 2 : -1) : i + 1;
      i++;
    }
    const from = i;
    while (i < text.length && text.charCodeAt(i) >= 0x20 && text.charCodeAt(i) <= 0x3f) i++;
    if (i >= text.length) return -1;
    const params = text.slice(from, i);
    const n = Math.max(1, Number.parseInt(params, 10) || 1);
    switch (text.charAt(i)) {
      case "m":
        this.style = applySGR(this.style, params);
        break;
      case "K":
        this.erase(params);
        break;
      case "G":
        this.column = Math.min(n - 1, maxCells);
        break;
      case "C":
        this.column = Math.min(this.column + n, maxCells);
        break;
      case "D":
        this.column = Math.max(0, this.column - n);
        break;
      case "P":
        this.chars.splice(this.column, n);
        this.styles.splice(this.column, n);
        break;
      default: // what moves to other lines or sets modes shows nothing
    }
    return i + 1;
  }

  private erase(params: string) {
    if (params === "1" || params === "2") {
      const to = params === "2" ? this.chars.length : Math.min(this.chars.length, this.column + 1);
      for (let i = 0; i < to; i++) {
        this.chars[i] = " ";
        this.styles[i] = undefined;
      }
      if (params === "2") this.chars.length = this.styles.length = 0;
      return;
    }
    if (this.column < this.chars.length) this.chars.length = this.styles.length = this.column;
  }
}

// A bar that was drawn ten thousand times in one line shows its last drawing.
function skipOverwritten(text: string): string {
  let at = text.length;
  for (let n = 0; n < maxReturns; n++) {
    at = text.lastIndexOf("\r", at - 1);
    if (at <= 0) return text;
  }
  return text.slice(at);
}

function endOfString(text: string, from: number): number {
  const bell = text.indexOf("\u0007", from);
  const st = text.indexOf("\u001b\\", from);
  if (bell < 0 && st < 0) return -1;
  return bell >= 0 && (st < 0 || bell < st) ? bell + 1 : st + 2;
}

/** A visible character instead of a control character. */
function picture(code: number): string {
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

function sameStyle(a: Style | undefined, b: Style | undefined): boolean {
  if (a === b) return true;
  if (!a || !b) return false;
  return a.fg === b.fg && a.bg === b.bg && a.bold === b.bold && a.dim === b.dim && a.italic === b.italic && a.underline === b.underline && a.strike === b.strike && a.inverse === b.inverse;
}

/** The style after the parameters of an SGR sequence (ECMA-48, ISO 8613-6). */
export function applySGR(before: Style | undefined, params: string): Style | undefined {
  if (/[^\d;:]/.test(params)) return before;
  let s: { -readonly [K in keyof Style]: Style[K] } = { ...before };
  const codes = params.split(";");
  for (let i = 0; i < codes.length; i++) {
    const part = codes[i] ?? "";
    const n = Number.parseInt(part, 10) || 0;
    if (n === 38 || n === 48) {
      const args = part.includes(":") ? part.split(":").slice(1) : codes.slice(i + 1);
      const { color, used } = extended(args, part.includes(":"));
      if (!part.includes(":")) i += used;
      if (color !== undefined) s[n === 38 ? "fg" : "bg"] = color;
    } else if (n === 0) s = {};
    else if (n === 1) s.bold = true;
    else if (n === 2) s.dim = true;
    else if (n === 3) s.italic = true;
    else if (n === 4) {
      if (part === "4:0") delete s.underline;
      else s.underline = true;
    } else if (n === 7) s.inverse = true;
    else if (n === 9) s.strike = true;
    else if (n === 21) s.underline = true;
    else if (n === 22) {
      delete s.bold;
      delete s.dim;
    } else if (n === 23) delete s.italic;
    else if (n === 24) delete s.underline;
    else if (n === 27) delete s.inverse;
    else if (n === 29) delete s.strike;
    else if (n >= 30 && n <= 37) s.fg = String(n - 30);
    else if (n === 39) delete s.fg;
    else if (n >= 40 && n <= 47) s.bg = String(n - 40);
    else if (n === 49) delete s.bg;
    else if (n >= 90 && n <= 97) s.fg = String(n - 82);
    else if (n >= 100 && n <= 107) s.bg = String(n - 92);
  }
  return Object.keys(s).length > 0 ? s : undefined;
}

function extended(args: readonly string[], colons: boolean): { color: string | undefined; used: number } {
  const byte = (i: number) => Math.min(255, Math.max(0, Number.parseInt(args[i] ?? "", 10) || 0));
  if (args[0] === "5") return { color: indexed(byte(1)), used: 2 };
  if (args[0] === "2") {
    // With colons, a colour space may come before the components.
    const from = colons && args.length > 4 ? 2 : 1;
    return { color: `rgb(${byte(from)} ${byte(from + 1)} ${byte(from + 2)})`, used: 4 };
  }
  return { color: undefined, used: 1 };
}

function indexed(n: number): string {
  if (n < 16) return String(n);
  if (n >= 232) {
    const v = 8 + (n - 232) * 10;
    return `rgb(${v} ${v} ${v})`;
  }
  const level = (v: number) => (v === 0 ? 0 : 55 + v * 40);
  const i = n - 16;
  return `rgb(${level(Math.floor(i / 36))} ${level(Math.floor(i / 6) % 6)} ${level(i % 6)})`;
}

/** How many columns text takes in a monospaced font. */
export function columns(text: string): number {
  // eslint-disable-next-line no-control-regex -- all of ASCII
  if (/^[\u0000-\u02ff]*$/.test(text)) return text.length;
  let n = 0;
  for (const ch of text) n += widthOf(ch.codePointAt(0) ?? 0);
  return n;
}

function widthOf(c: number): number {
  if ((c >= 0x300 && c <= 0x36f) || (c >= 0x1ab0 && c <= 0x1aff) || (c >= 0x20d0 && c <= 0x20ff) || (c >= 0x200b && c <= 0x200f) || (c >= 0xfe00 && c <= 0xfe0f)) return 0;
  if (c < 0x1100) return 1;
  const wide =
    c <= 0x115f ||
    (c >= 0x2e80 && c <= 0xa4cf) ||
    (c >= 0xac00 && c <= 0xd7a3) ||
    (c >= 0xf900 && c <= 0xfaff) ||
    (c >= 0xfe30 && c <= 0xfe6f) ||
    (c >= 0xff00 && c <= 0xff60) ||
    (c >= 0xffe0 && c <= 0xffe6) ||
    (c >= 0x1f300 && c <= 0x1faff) ||
    (c >= 0x20000 && c <= 0x3fffd);
  return wide ? 2 : 1;
}
