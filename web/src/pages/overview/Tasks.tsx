import { Text } from "@mantine/core";
import type { HistoryData } from "@/api/hooks";
import { finalStates, type Overview, type TaskState } from "@/api/types";
import { count, localTimes, rate } from "@/ui/format";
import { LinkAnchor } from "@/ui/links";
import { Sparkline } from "@/ui/Sparkline";
import { stateColor, StateBadge } from "@/ui/StateBadge";
import { TimeAgo } from "@/ui/time";
import css from "./overview.module.css";

const rows: readonly { state: TaskState; series: string }[] = [
  { state: "running", series: "running" },
  { state: "queued", series: "queued" },
  { state: "waiting", series: "waiting" },
];

/** Tasks by state now and over the span, throughput, and the task that has waited for longest. */
export function Tasks({ overview, history, span }: { overview: Overview; history: HistoryData | undefined; span: string }) {
  const { tasks, rate: now, oldest_waiting: oldest } = overview;
  const series = (name: string) => history?.series[name] ?? [];
  const brief = (["assigned", "cancelling"] as const).filter((s) => tasks[s]);
  return (
    <section className="card" aria-labelledby="tasks">
      <h2 id="tasks" className={css.heading}>
        Tasks
      </h2>
      <div className={css.states}>
        {rows.map((r) => (
          <div key={r.state} className={css.state}>
            <StateBadge state={r.state} />
            <b className={css.number}>{count(tasks[r.state] ?? 0)}</b>
            <Sparkline values={series(r.series)} label={`${r.state} tasks over the last ${span}`} color={stateColor(r.state)} />
          </div>
        ))}
        <div className={css.state}>
          <span className={css.stateName}>Finished</span>
          <b className={css.number}>{rate(now.finished)}</b>
          <Sparkline values={series("finished")} label={`tasks finished per second over the last ${span}`} color="var(--state-succeeded)" />
        </div>
        <div className={css.state}>
          <span className={css.stateName}>Failed</span>
          <b className={css.number}>{rate(now.failed)}</b>
          <Sparkline values={series("failed")} label={`tasks failed per second over the last ${span}`} color="var(--state-failed)" />
        </div>
      </div>
      <div className={css.finals}>
        {brief.map((s) => (
          <StateBadge key={s} state={s} count={count(tasks[s])} />
        ))}
        {finalStates.map((s) => (
          <StateBadge key={s} state={s} count={count(tasks[s] ?? 0)} />
        ))}
      </div>
      {oldest ? (
        <div className={css.oldest}>
          <Text size="sm" fw={600}>
            Waiting for longest
          </Text>
          <Text size="sm" component="div">
            <LinkAnchor to="/tasks/$task" params={{ task: oldest.task }} size="sm" underline="always">
              Task {oldest.task}
            </LinkAnchor>{" "}
            of {oldest.name}, queued <TimeAgo at={oldest.queued_at} />
            {oldest.summary ? `: ${localTimes(oldest.summary)}` : "."}
          </Text>
        </div>
      ) : (
        <Text size="sm" c="dimmed" mt={10}>
          {(tasks.queued ?? 0) > 0 ? "The queued tasks are about to be retried." : "No task is queued."}
        </Text>
      )}
    </section>
  );
}
