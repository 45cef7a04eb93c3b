import { Fragment, useMemo, useState } from "react";
import { plural } from "@/ui/format";
import { fold, type DiffLine } from "./model/diff";
import { blocks, tokens } from "./model/spec";
import css from "./spec.module.css";

/** Lines that are shown at most: a spec of a megabyte would be a page without end. */
const maxLines = 5_000;

const classOf = { key: css.key, text: css.text, number: css.number_, word: css.word, reference: css.reference, mark: css.mark, comment: css.comment, plain: undefined };

function Line({ text, block }: { text: string; block: boolean }) {
  return (
    <code>
      {tokens(text, block).map((t, i) => (
        <span key={i} className={classOf[t.kind]}>
          {t.text}
        </span>
      ))}
      {text === "" && " "}
    </code>
  );
}

/** YAML with line numbers and colours. */
export function SpecText({ text, wrap }: { text: string; wrap: boolean }) {
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  const inBlock = useMemo(() => blocks(lines), [lines]);
  return (
    // It scrolls, so the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className={css.code} tabIndex={0} aria-label="Spec as YAML">
      {lines.slice(0, maxLines).map((l, i) => (
        <span key={i} className={css.line} data-wrap={wrap || undefined}>
          <span className={css.number}>{i + 1}</span>
          <Line text={l} block={inBlock[i] ?? false} />
        </span>
      ))}
      {lines.length > maxLines && <span className={css.line}>… {plural(lines.length - maxLines, "more line")}: download the spec to see them</span>}
    </pre>
  );
}

const signs = { same: " ", added: "+", removed: "−" };

/** A comparison of two texts, unchanged parts folded. */
export function SpecDiff({ lines, wrap, label }: { lines: readonly DiffLine[]; wrap: boolean; label: string }) {
  const hunks = useMemo(() => fold(lines.slice(0, maxLines)), [lines]);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre className={css.code} tabIndex={0} aria-label={label}>
      {hunks.map((h, i) => (
        <Fragment key={i}>
          {"folded" in h && !open.has(i) ? (
            <button type="button" className={css.fold} onClick={() => setOpen(new Set(open).add(i))}>
              Show {plural(h.folded, "unchanged line")}
            </button>
          ) : (
            h.lines.map((l, k) => (
              <span key={k} className={css.line} data-diff data-kind={l.kind} data-wrap={wrap || undefined}>
                <span className={css.number}>{l.before ?? ""}</span>
                <span className={css.number}>{l.after ?? ""}</span>
                <span className={css.sign}>
                  {signs[l.kind]}
                  {l.kind !== "same" && <span className="hidden-visually">{l.kind}</span>}
                </span>
                {/* Plain: coloured text would not stand out on a coloured line. */}
                <code>{l.text || " "}</code>
              </span>
            ))
          )}
        </Fragment>
      ))}
    </pre>
  );
}
