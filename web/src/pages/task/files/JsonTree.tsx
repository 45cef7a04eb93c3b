import { ChevronDown, ChevronRight } from "lucide-react";
import { useState } from "react";
import { count, plural } from "@/ui/format";
import css from "./files.module.css";

/** Entries of one object or list that are shown at once. */
const page = 100;

/** A JSON value that can be opened level by level; open levels are shown at first. */
export function JsonTree({ value, open = 1 }: { value: unknown; open?: number }) {
  return (
    <div className={css.json}>
      <Node value={value} open={open} />
    </div>
  );
}

function Node({ name, value, open }: { name?: string; value: unknown; open: number }) {
  const [opened, setOpened] = useState(open > 0);
  const [shown, setShown] = useState(page);
  const label = name !== undefined && <span className={css.key}>{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return (
      <>
        {label}
        <Leaf value={value} />
      </>
    );
  }
  const list = Array.isArray(value);
  const entries: readonly (readonly [string, unknown])[] = list ? value.slice(0, shown).map((v, i) => [String(i), v] as const) : Object.entries(value).slice(0, shown);
  const size = list ? value.length : Object.keys(value).length;
  if (size === 0) {
    return (
      <>
        {label}
        <span className={css.key}>{list ? "[]" : "{}"}</span>
      </>
    );
  }
  return (
    <>
      <button type="button" className={css.toggle} aria-expanded={opened} onClick={() => setOpened(!opened)}>
        {opened ? <ChevronDown size={13} aria-hidden /> : <ChevronRight size={13} aria-hidden />}
        {label}
        <span className={css.key}>{list ? `[${plural(size, "item")}]` : `{${plural(size, "field")}}`}</span>
      </button>
      {opened && (
        <ul>
          {entries.map(([k, v]) => (
            <li key={k}>
              <Node name={k} value={v} open={open - 1} />
            </li>
          ))}
          {size > shown && (
            <li>
              <button type="button" className={css.toggle} style={{ color: "var(--mantine-color-anchor)" }} onClick={() => setShown(shown + 10 * page)}>
                Show more ({count(size - shown)} left)
              </button>
            </li>
          )}
        </ul>
      )}
    </>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (typeof value === "string") return <span className={css.string}>{JSON.stringify(value.length > 5_000 ? `${value.slice(0, 5_000)}…` : value)}</span>;
  if (typeof value === "number") return <span className={css.number}>{String(value)}</span>;
  return <span className={css.literal}>{String(value)}</span>;
}
