import { finished, taskStates, total, type Counts } from "@/api/types";
import { count, percent, words } from "./format";
import css from "./Progress.module.css";
import { stateColor } from "./StateBadge";

/** A share from 0 to 1 as a bar with its number. */
export function ProgressBar({ value, label = "progress", text, color }: { value: number | undefined; label?: string; text?: string; color?: string }) {
  const share = value === undefined ? undefined : Math.min(1, Math.max(0, value));
  return (
    <div className={css.row}>
      <div className={css.track} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={share === undefined ? undefined : Math.round(share * 100)}>
        <div className={css.fill} style={{ width: `${(share ?? 0) * 100}%`, ...(color && { background: color }) }} />
      </div>
      <span className={css.text}>{text ?? percent(share)}</span>
    </div>
  );
}

const order = ["succeeded", "failed", "timed_out", "cancelled", "skipped", "cancelling", "running", "assigned", "queued", "waiting"] as const;

/** The tasks of a job by state as one bar; its label names every number. */
export function CountsBar({ counts, text }: { counts: Counts; text?: string }) {
  const all = total(counts);
  const label = taskStates.filter((s) => counts[s]).map((s) => `${count(counts[s])} ${words(s)}`).join(", ") || "no tasks";
  return (
    <div className={css.row} title={label}>
      <div className={css.track} role="img" aria-label={`Tasks: ${label}`}>
        {order.map((s) => {
          const n = counts[s] ?? 0;
          // What is few among very many stays visible.
          return n > 0 && <div key={s} className={css.part} data-state={s} style={{ flexGrow: Math.max(n, all / 60), background: stateColor(s) }} />;
        })}
      </div>
      <span className={css.text}>{text ?? (all === 1 ? percent(finished(counts)) : `${count(finished(counts))}/${count(all)}`)}</span>
    </div>
  );
}
