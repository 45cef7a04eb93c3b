import { Text, Timeline } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Ban, CircleCheck, CirclePlay, CirclePlus, CircleX, Clock, Flag, RotateCcw, Save, Send, SkipForward, TimerOff, type LucideIcon } from "lucide-react";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { between, dateTime, duration, words } from "@/ui/format";
import { WorkerLink } from "@/ui/WorkerLink";
import { PagePending } from "@/app/RouteStates";
import type { TaskEvent } from "@/api/types";
import { eventsQuery } from "./api";
import { plainReason } from "./reasons";

const looks: Readonly<Record<string, { icon: LucideIcon; color: string; text: string }>> = {
  created: { icon: CirclePlus, color: "waiting", text: "Submitted" },
  queued: { icon: Clock, color: "queued", text: "Queued" },
  assigned: { icon: Send, color: "assigned", text: "Offered to a worker" },
  started: { icon: CirclePlay, color: "running", text: "Started" },
  checkpoint: { icon: Save, color: "succeeded", text: "Checkpoint saved" },
  ended: { icon: Flag, color: "waiting", text: "Ended" },
  retry: { icon: RotateCcw, color: "queued", text: "Next attempt" },
  finished: { icon: Flag, color: "waiting", text: "Finished" },
};

const ends: Readonly<Record<string, { icon: LucideIcon; color: string }>> = {
  succeeded: { icon: CircleCheck, color: "succeeded" },
  failed: { icon: CircleX, color: "failed" },
  lost: { icon: CircleX, color: "failed" },
  rejected: { icon: CircleX, color: "timed_out" },
  timed_out: { icon: TimerOff, color: "timed_out" },
  cancelled: { icon: Ban, color: "cancelled" },
  skipped: { icon: SkipForward, color: "skipped" },
};

/** How an event looks: an end looks like its outcome. */
function lookOf(e: TaskEvent): { icon: LucideIcon; color: string; text: string } {
  const look = looks[e.type] ?? { icon: Flag, color: "waiting", text: words(e.type) };
  const outcome = e.outcome ?? (e.type === "finished" ? /^\w+/.exec(e.message ?? "")?.[0] : undefined);
  return outcome && ends[outcome] ? { ...ends[outcome], text: `${look.text}: ${words(outcome)}` } : look;
}

/** What happened to the task, in order, with the time between. */
export function Events({ task, workerName }: { task: string; workerName: (id: string) => string }) {
  const { data, error, isPending, refetch } = useQuery(eventsQuery(task));
  if (isPending) return <PagePending />;
  if (error && !data) return <ErrorState error={error} retry={() => void refetch()} title="The events could not be loaded" />;
  const events = data?.events ?? [];
  if (events.length === 0) {
    return (
      <div className="card">
        <EmptyState icon={Clock} title="Nothing has happened yet" />
      </div>
    );
  }
  return (
    <div className="card">
      <Timeline bulletSize={26} lineWidth={2} active={events.length}>
        {events.map((e, i) => {
          const look = lookOf(e);
          const why = e.type === "finished" ? e.message?.replace(/^\w+(: )?/, "") : e.message;
          const reason = plainReason(e.reason)?.what;
          const before = events[i - 1];
          const gap = before ? between(before.at, e.at) : undefined;
          return (
            <Timeline.Item
              key={i}
              bullet={<look.icon size={15} aria-hidden />}
              styles={{ itemBullet: { background: "var(--card)", borderColor: `var(--state-${look.color})`, color: `var(--state-${look.color})` } }}
              title={
                <Text component="span" size="sm" fw={600}>
                  {look.text}
                  {e.attempt !== undefined && e.attempt > 0 && (
                    <Text component="span" size="sm" c="dimmed" fw={400}>
                      {" "}
                      attempt {e.attempt}
                    </Text>
                  )}
                </Text>
              }
            >
              {(reason ?? why) && (
                <Text size="sm">
                  {reason}
                  {reason && why ? ": " : ""}
                  {why}
                </Text>
              )}
              <Text size="xs" c="dimmed">
                {dateTime(e.at)}
                {gap !== undefined && gap >= 0.001 && `, ${duration(gap)} later`}
                {e.worker && (
                  <>
                    , worker <WorkerLink id={e.worker} name={workerName(e.worker)} size="xs" underline="always" />
                  </>
                )}
              </Text>
            </Timeline.Item>
          );
        })}
      </Timeline>
    </div>
  );
}
