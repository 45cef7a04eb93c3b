/** One server-sent event. */
export interface ServerEvent {
  readonly type: string;
  readonly data: string;
}

/** Longest line that is read: a longer one is a fault of what sits between server and browser. */
const maxLine = 4 << 20;

/**
 * Splits a stream of text into server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html
 * says: lines end in LF, CR or CRLF, a blank line ends an event, lines that begin with a colon are comments.
 */
export class EventParser {
  private rest = "";
  private type = "";
  private data: string[] = [];
  private id = "";
  private skipLF = false;

  /** What Last-Event-ID has to be to resume after what was read; a block without data, such as a keep-alive, may change it. */
  lastId = "";

  /** The events that this chunk completes. */
  push(chunk: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let text = this.rest + chunk;
    if (this.skipLF && text.startsWith("\n")) text = text.slice(1);
    this.skipLF = false;
    let from = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      if (c !== 10 && c !== 13) continue;
      this.line(text.slice(from, i), events);
      if (c === 13) {
        if (i + 1 === text.length) this.skipLF = true;
        else if (text.charCodeAt(i + 1) === 10) i++;
      }
      from = i + 1;
    }
    this.rest = text.slice(from);
    if (this.rest.length > maxLine) throw new Error("the event stream has a line without an end");
    return events;
  }

  private line(line: string, events: ServerEvent[]) {
    if (line === "") {
      this.lastId = this.id;
      if (this.data.length > 0) events.push({ type: this.type || "message", data: this.data.join("\n") });
      this.type = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.data.push(value);
    else if (field === "event") this.type = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
  }
}
