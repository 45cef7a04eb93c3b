import { memo } from "react";
import { dateTime } from "@/ui/format";
import type { LogQuery } from "../api";
import type { Line, Stream } from "./buffer";
import css from "./log.module.css";
import { cssOf, paint } from "./paint";
import { highlights } from "./search";

/** Pixels of a row; the style sheet says the same. */
export const rowHeight = 19;

const marks: Record<Stream, string> = { stdout: "   ", stderr: "err", system: "sys" };
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });

/** Characters of the gutter, for the layout. */
export const gutterColumns = (times: boolean) => (times ? 12 + 1 : 0) + 1 + 3 + 1;

export interface LogLineProps {
  readonly line: Line;
  readonly top: number;
  readonly rows: number;
  readonly wrap: number | undefined;
  readonly times: boolean;
  readonly current: boolean;
  readonly query: LogQuery | undefined;
  readonly onPick: (offset: number) => void;
}

/** One line of output; text is only ever text. */
export const LogLine = memo(function LogLine({ line, top, rows, wrap, times, current, query, onPick }: LogLineProps) {
  const pieces = paint(line, highlights(line.text, query));
  return (
    <div className={css.line} data-stream={line.stream} data-current={current || undefined} data-wrap={wrap ? "" : undefined} data-offset={line.offset} style={{ top, height: rows * rowHeight }}>
      <button type="button" tabIndex={-1} className={css.gutter} onClick={() => onPick(line.offset)} title={`${line.stream}, ${dateTime(line.at)}. Click for a link to this line`}>
        {/* In an element of its own: a flex box leaves out text that is only blanks. */}
        <span>{(current ? "▸" : " ") + marks[line.stream] + (times ? ` ${clock.format(new Date(line.at))}` : "")}</span>
        <span className="hidden-visually">link to this line</span>
      </button>
      <span className={css.text} style={wrap ? { width: `${wrap}ch` } : undefined}>
        {pieces.map((p, i) => {
          const style = cssOf(p.style);
          if (p.mark) return <mark key={i}>{p.text}</mark>;
          return style ? (
            <span key={i} style={style}>
              {p.text}
            </span>
          ) : (
            p.text
          );
        })}
      </span>
    </div>
  );
});
