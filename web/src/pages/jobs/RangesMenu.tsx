import { Button, Popover, TextInput } from "@mantine/core";
import { SlidersHorizontal } from "lucide-react";
import { useState } from "react";
import { number, scaleOf } from "./model/plot";
import type { Field, Run } from "./model/results";
import css from "./plot.module.css";
import type { Bound, Ranges } from "./search";
import { label, type RangeChange } from "./tabs/Results";

/** Ranges as numbers or texts: what dragging on a plot does, by keyboard. */
export function RangesMenu({ fields, runs, ranges, onChange }: { fields: readonly Field[]; runs: readonly Run[]; ranges: Ranges; onChange: (change: RangeChange) => void }) {
  const [opened, setOpened] = useState(false);
  const usable = fields.filter((f) => (f.varies && f.known >= 2 && f.key !== "about:task") || ranges[f.key]);
  if (usable.length === 0) return null;
  return (
    <Popover opened={opened} onChange={setOpened} position="bottom-start" withArrow trapFocus width={380}>
      <Popover.Target>
        <Button size="xs" variant="default" leftSection={<SlidersHorizontal size={14} aria-hidden />} onClick={() => setOpened(!opened)} aria-haspopup="dialog">
          Ranges
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label="Ranges">
        <div className={css.ranges}>
          {usable.map((f) => (
            <Row key={f.key} field={f} runs={runs} ranges={ranges} onChange={onChange} />
          ))}
        </div>
      </Popover.Dropdown>
    </Popover>
  );
}

function Row({ field, runs, ranges, onChange }: { field: Field; runs: readonly Run[]; ranges: Ranges; onChange: (change: RangeChange) => void }) {
  const [low, high] = ranges[field.key] ?? [null, null];
  const ends = field.numeric ? [field.min, field.max] : scaleOf(field, runs).texts;
  const set = (from: Bound, to: Bound) => onChange({ [field.key]: from === null && to === null ? undefined : [from, to] });
  return (
    <>
      <span className="truncate" title={label(field)}>
        {label(field)}
      </span>
      <End name={`${label(field)} from`} numeric={field.numeric} value={low} hint={ends[0]} onCommit={(v) => set(v, high)} />
      <End name={`${label(field)} to`} numeric={field.numeric} value={high} hint={ends[ends.length - 1]} onCommit={(v) => set(low, v)} />
    </>
  );
}

/** One end of a range. It counts when it is complete: at Enter, or when the field is left. */
function End({ name, numeric, value, hint, onCommit }: { name: string; numeric: boolean; value: Bound; hint: Bound | undefined; onCommit: (v: Bound) => void }) {
  const [written, setWritten] = useState<{ text: string; over: Bound }>();
  const text = written && written.over === value ? written.text : String(value ?? "");
  const plain = text.trim();
  const meant: Bound = plain === "" ? null : numeric ? Number(plain) : plain;
  const wrong = typeof meant === "number" && !Number.isFinite(meant);
  const commit = () => {
    if (!wrong && meant !== value) onCommit(meant);
  };
  return (
    <TextInput
      size="xs"
      aria-label={name}
      placeholder={typeof hint === "number" ? number(hint) : (hint ?? "")}
      inputMode={numeric ? "decimal" : "text"}
      maxLength={200}
      value={text}
      error={wrong}
      onChange={(e) => setWritten({ text: e.currentTarget.value, over: value })}
      onBlur={commit}
      onKeyDown={(e) => {
        if (e.key === "Enter") commit();
      }}
    />
  );
}
