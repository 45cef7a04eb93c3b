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

/**
 * The tasks of a job by state as one bar; its label names every number. What the running tasks have done is drawn in their part, where
 * progress, the share of the whole job that is done, says it.
 */
export function CountsBar({ counts, progress, text }: { counts: Counts; progress?: number | undefined; text?: string }) {
  const all = total(counts);
  const label = taskStates.filter((s) => counts[s]).map((s) => `${count(counts[s])} ${words(s)}`).join(", ") || "no tasks";
  const held = (counts.running ?? 0) + (counts.cancelling ?? 0);
  const done = progress === undefined || held === 0 ? 0 : Math.min(1, Math.max(0, (progress * all - finished(counts)) / held));
  return (
    <div className={css.row} title={progress === undefined ? label : `${percent(progress)} done: ${label}`}>
      <div className={css.track} role="img" aria-label={`Tasks: ${label}`}>
        {order.map((s) => {
          const n = counts[s] ?? 0;
          // What is few among very many stays visible.
          if (n <= 0) return null;
          const style = { flexGrow: Math.max(n, all / 60), background: stateColor(s) };
          if (s !== "running" || progress === undefined) return <div key={s} className={css.part} data-state={s} style={style} />;
          return (
            <div key={s} className={css.part} data-state={s} style={{ ...style, background: `color-mix(in srgb, ${stateColor(s)} 40%, transparent)` }}>
              <div className={css.done} style={{ width: `${done * 100}%`, background: stateColor(s) }} />
            </div>
          );
        })}
      </div>
      <span className={css.text}>{text ?? (all === 1 ? percent(progress ?? finished(counts)) : `${count(finished(counts))}/${count(all)}`)}</span>
    </div>
  );
}
