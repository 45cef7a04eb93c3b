import { ActionIcon, Anchor, Button, Group, Select, Text, Tooltip } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { Ban, ChevronLeft, ChevronRight, PencilLine, RotateCcw } from "lucide-react";
import { useState, type ReactNode } from "react";
import { client, data } from "@/api/client";
import { useCan } from "@/api/session";
import { finalStates, type Attempt, type Job, type Task, type TaskState } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { cost, count, dateTime, digits, none } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { ProgressBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { taskAddress } from "@/ui/taskAddress";
import { Elapsed, TimeAgo } from "@/ui/time";
import { act } from "@/ui/toast";
import { WorkerLink } from "@/ui/WorkerLink";
import { numberOf } from "./attempt";
import css from "./task.module.css";
import { plainReason } from "./reasons";
import type { TaskSearch } from "./search";

const retriable: readonly TaskState[] = ["failed", "timed_out", "cancelled"];

/** Metrics in the header at most; the rest is in the charts. */
const maxMetrics = 8;

export interface HeaderProps {
  readonly task: Task;
  readonly job: Job | undefined;
  readonly attempts: readonly Attempt[];
  /** The attempt that is shown, if it is not the newest. */
  readonly former: Attempt | undefined;
  readonly search: TaskSearch;
  readonly workerName: (id: string) => string;
}

export function Header({ task, job, attempts, former, search, workerName }: HeaderProps) {
  const state = task.state;
  const final = finalStates.includes(state);
  const group = job?.groups?.[task.group];
  // A job of one task without a name of its own goes by the job's.
  const name = task.name === "task" && job ? job.name : task.name;
  const title = task.element ? `${name} ${task.element}` : name;
  const address = taskAddress(job, task);
  const reason = plainReason(task.reason);
  const metrics = former ? [] : Object.entries(task.metrics ?? {});
  // Facts of an execution are those of the attempt that is shown.
  const run = former ?? task;
  return (
    <PageHeader
      document={`${address} ${title}`}
      title={
        <>
          <span className="dim" style={{ fontWeight: 400 }}>
            {address}
          </span>{" "}
          {title}
        </>
      }
      badge={<StateBadge state={state} />}
      crumbs={[
        { label: "Jobs", to: "/jobs" },
        { label: job ? `${task.job} ${job.name}` : String(task.job), to: `/jobs/${task.job}` },
      ]}
      actions={<Actions task={task} address={address} state={state} final={final} />}
    >
      {reason && !final && (
        <Text size="sm" mt={4}>
          {reason.what}
          {task.message ? `: ${task.message}` : ""}
        </Text>
      )}
      {state !== "succeeded" && !former && (task.progress !== undefined || task.step) && (
        <div className={css.progress}>
          {task.progress !== undefined && <ProgressBar value={task.progress} label={`Progress of task ${address}`} />}
          {task.step && <Text size="sm">{task.step}</Text>}
        </div>
      )}
      <dl className={css.facts}>
        <Fact label="Attempt">
          <AttemptSelect task={task} attempts={attempts} search={search} />
        </Fact>
        <Fact label="Worker">
          {run.worker ? (
            <WorkerLink id={run.worker} name={workerName(run.worker)} />
          ) : (
            none
          )}
        </Fact>
        <Fact label="Kind">
          <span className="mono">{task.kind}</span>
        </Fact>
        <Fact label="Cached result of task" hide={!task.cached}>
          <span className="mono">{task.origin}</span>
        </Fact>
        {former?.outcome && (
          <Fact label="Outcome">
            <StateBadge state={former.outcome as "failed"} />
          </Fact>
        )}
        <Fact label={final || former ? "Took" : "Runs for"} hide={!run.started_at}>
          <Elapsed from={run.started_at} to={run.finished_at} />
        </Fact>
        <Fact label="In the queue" hide={!task.queued_at || former !== undefined}>
          <Elapsed from={task.queued_at} to={task.started_at ?? task.finished_at} />
        </Fact>
        <Fact label={run.finished_at ? "Ended" : run.started_at ? "Started" : "Created"}>
          <span title={dateTime(run.finished_at ?? run.started_at ?? task.created_at)}>
            <TimeAgo at={run.finished_at ?? run.started_at ?? task.created_at} />
          </span>
        </Fact>
        <Fact label="Cost" hide={run.usage?.cost === undefined}>
          {cost(run.usage?.cost)}
        </Fact>
        {group && group.size > 1 && (
          <Fact label="Element">
            <Siblings task={task} first={group.first} size={group.size} search={search} />
          </Fact>
        )}
      </dl>
      {metrics.length > 0 && (
        <dl className={css.metrics} aria-label="Last values of metrics">
          {metrics.slice(0, maxMetrics).map(([name, v]) => (
            <div key={name} className={css.metric}>
              <dt title={name}>{name}</dt>
              <dd>{digits(v, 4)}</dd>
            </div>
          ))}
          {metrics.length > maxMetrics && (
            <Anchor component={Link} to="." search={((s: TaskSearch) => ({ ...s, tab: "metrics" })) as never} size="sm" style={{ alignSelf: "center" }}>
              {metrics.length - maxMetrics} more
            </Anchor>
          )}
        </dl>
      )}
    </PageHeader>
  );
}

function Fact({ label, hide = false, children }: { label: string; hide?: boolean; children: ReactNode }) {
  if (hide) return null;
  return (
    <div className={css.fact}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function AttemptSelect({ task, attempts, search }: { task: Task; attempts: readonly Attempt[]; search: TaskSearch }) {
  const navigate = useNavigate({ from: "/tasks/$task" });
  const last = task.attempt ?? 0;
  if (last === 0) return <>{none}</>;
  if (last === 1) return <>1</>;
  const chosen = search.attempt;
  const known = new Map(attempts.map((a) => [numberOf(a), a]));
  const from = Math.max(1, last - 199);
  const options = Array.from({ length: last - from + 1 }, (_, i) => last - i).map((n) => {
    const outcome = known.get(n)?.outcome;
    return { value: String(n), label: `${n} of ${last}${outcome ? `, ${outcome.replaceAll("_", " ")}` : n === last ? ", current" : ""}` };
  });
  return (
    <Select
      size="xs"
      w={170}
      aria-label="Attempt"
      data={[{ value: "", label: `newest (${last})` }, ...options]}
      value={chosen === undefined ? "" : String(chosen)}
      allowDeselect={false}
      onChange={(v) => void navigate({ search: (s) => ({ ...s, attempt: v ? Number(v) : undefined, at: undefined }), replace: true })}
    />
  );
}

function Siblings({ task, first, size, search }: { task: Task; first: number; size: number; search: TaskSearch }) {
  const navigate = useNavigate();
  const place = task.index - first;
  const id = (n: number) => `${task.job}.${first + n}`;
  const keep: TaskSearch = search.tab ? { tab: search.tab } : {};
  const go = (n: number) => n >= 0 && n < size && void navigate({ to: "/tasks/$task", params: { task: id(n) }, search: keep });
  useHotkeys([
    ["[", () => go(place - 1)],
    ["]", () => go(place + 1)],
  ]);
  const arrow = (n: number, label: string, key: string, icon: ReactNode) => (
    <Tooltip label={`${label} (${key})`}>
      {n >= 0 && n < size ? (
        <ActionIcon component={Link} to="/tasks/$task" params={{ task: id(n) } as never} search={keep as never} size="sm" aria-label={label}>
          {icon}
        </ActionIcon>
      ) : (
        <ActionIcon size="sm" disabled aria-label={label}>
          {icon}
        </ActionIcon>
      )}
    </Tooltip>
  );
  return (
    <Group gap={4} wrap="nowrap" component="span">
      {arrow(place - 1, "Previous element", "[", <ChevronLeft size={15} aria-hidden />)}
      <span className="nowrap">
        {count(place + 1)} of {count(size)}
      </span>
      {arrow(place + 1, "Next element", "]", <ChevronRight size={15} aria-hidden />)}
    </Group>
  );
}

function Actions({ task, address, state, final }: { task: Task; address: string; state: TaskState; final: boolean }) {
  const queries = useQueryClient();
  const changes = useCan("cancel, retry or edit jobs");
  const submits = useCan("submit jobs");
  const [asking, setAsking] = useState(false);
  const refresh = () => queries.invalidateQueries({ queryKey: ["/api/v1/tasks/{task}"] });
  const path = { job: String(task.job) } as never;
  const body = { tasks: String(task.index) };
  const cancel = async () => {
    await data(client.POST("/api/v1/jobs/{job}/cancel", { params: { path }, body }));
    await refresh();
  };
  const retry = async () => {
    await data(client.POST("/api/v1/jobs/{job}/retry", { params: { path }, body }));
    await refresh();
  };
  return (
    <>
      {changes && !final && state !== "cancelling" && (
        <Button variant="default" leftSection={<Ban size={15} aria-hidden />} onClick={() => setAsking(true)}>
          Cancel
        </Button>
      )}
      {changes && retriable.includes(state) && (
        <Button leftSection={<RotateCcw size={15} aria-hidden />} onClick={() => void act("Retry", retry, `Task ${address} is queued again`)}>
          Retry
        </Button>
      )}
      {submits && (
        <Button component={Link} to="/submit" search={{ from: task.id } as never} variant="default" leftSection={<PencilLine size={15} aria-hidden />}>
          Run again with changes
        </Button>
      )}
      <ConfirmDialog opened={asking} onClose={() => setAsking(false)} title={`Cancel task ${address}?`} action="Cancel the task" danger onConfirm={cancel}>
        {state === "running" ? "It is asked to stop, and is killed after its grace period. What it has not saved is lost." : "It will not start."} Stages that need it are skipped.
      </ConfirmDialog>
    </>
  );
}
