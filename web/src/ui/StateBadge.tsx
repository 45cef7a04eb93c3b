import {
  Ban,
  CircleAlert,
  CircleCheck,
  CircleDashed,
  CircleDot,
  CirclePause,
  CircleQuestionMark,
  CircleSlash,
  CircleX,
  Clock,
  Hourglass,
  LoaderCircle,
  LogOut,
  SkipForward,
  TimerOff,
  Unplug,
  type LucideIcon,
} from "lucide-react";
import type { AnyState } from "@/api/types";
import { words } from "./format";
import css from "./StateBadge.module.css";

const looks: Record<AnyState, { icon: LucideIcon; color: string }> = {
  waiting: { icon: CircleDashed, color: "waiting" },
  queued: { icon: Clock, color: "queued" },
  assigned: { icon: CircleDot, color: "assigned" },
  running: { icon: LoaderCircle, color: "running" },
  cancelling: { icon: Hourglass, color: "cancelling" },
  succeeded: { icon: CircleCheck, color: "succeeded" },
  failed: { icon: CircleX, color: "failed" },
  timed_out: { icon: TimerOff, color: "timed_out" },
  cancelled: { icon: Ban, color: "cancelled" },
  skipped: { icon: SkipForward, color: "skipped" },
  pending: { icon: Hourglass, color: "queued" },
  active: { icon: CircleCheck, color: "succeeded" },
  paused: { icon: CirclePause, color: "cancelling" },
  draining: { icon: LogOut, color: "cancelling" },
  unreachable: { icon: Unplug, color: "failed" },
  gone: { icon: CircleSlash, color: "cancelled" },
  rejected: { icon: CircleAlert, color: "timed_out" },
  lost: { icon: Unplug, color: "failed" },
  held: { icon: CirclePause, color: "cancelling" },
  unknown: { icon: CircleQuestionMark, color: "waiting" },
};

/** The CSS colour of a state, for charts and grids. */
export function stateColor(state: AnyState): string {
  return `var(--state-${looks[state]?.color ?? "waiting"})`;
}

export function StateIcon({ state, size = 14 }: { state: AnyState; size?: number }) {
  const Icon = looks[state]?.icon ?? CircleDashed;
  return <Icon size={size} aria-hidden className={state === "running" ? css.spin : undefined} style={{ color: stateColor(state), flex: "none" }} />;
}

/** A state as icon, word and colour. */
export function StateBadge({ state, count, compact = false }: { state: AnyState; count?: string; compact?: boolean }) {
  return (
    <span className={css.badge} data-compact={compact || undefined} style={{ "--state": stateColor(state) }} title={compact ? words(state) : undefined}>
      <StateIcon state={state} />
      <span className={compact ? "hidden-visually" : undefined}>{words(state)}</span>
      {count !== undefined && <span className={css.count}>{count}</span>}
    </span>
  );
}
