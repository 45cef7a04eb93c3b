import { Button, Group, MultiSelect, Select, Skeleton, TextInput } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link, useNavigate } from "@tanstack/react-router";
import { FilterX, Hash } from "lucide-react";
import { useMemo, useState } from "react";
import { taskStates, type Job, type Task, type TaskState } from "@/api/types";
import { DataTable, type Column, type Sort } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { between, bytes, cost, count, digits, none, words } from "@/ui/format";
import { ProgressBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { sortRows } from "@/ui/sort";
import { parseTask, taskAddress } from "@/ui/taskAddress";
import { Elapsed } from "@/ui/time";
import { WorkerLink } from "@/ui/WorkerLink";
import { useTasks } from "../feed/tasks";
import { Incomplete } from "../Incomplete";
import type { TabProps } from "../job";
import page from "../job.module.css";
import jobs from "../jobs.module.css";
import { messageOf, reasonOf } from "../model/failures";

const maxTasks = 50_000;

export const number = (n: number | string | undefined) => (typeof n === "number" ? n : undefined);

/** The tasks of the job, live: filtered by state and stage, found by number. */
export default function Tasks({ job, search, set }: TabProps) {
  const phone = useMediaQuery("(max-width: 48em)") ?? false;
  const navigate = useNavigate();
  const groups = job.groups ?? [];
  const stage = groups.find((g) => g.name === search.stage);
  const { list, feed } = useTasks(job.id, { states: search.state, numbers: stage && groups.length > 1 ? `${stage.first}-${stage.first + stage.size - 1}` : undefined, page: 200, max: maxTasks });
  const columns = useMemo(() => taskColumns(phone, groups.length > 1, job), [phone, groups.length, job]);
  const sort = useMemo((): Sort | undefined => (search.sort ? { by: search.sort.replace(/^-/, ""), desc: search.sort.startsWith("-") } : undefined), [search.sort]);
  const rows = useMemo(() => {
    const by = columns.find((c) => c.id === sort?.by)?.sort;
    return by && sort ? sortRows(list.rows, by, sort.desc) : list.rows;
  }, [list.rows, columns, sort]);
  const all = stage ? stage.counts : job.counts;
  const wanted: readonly TaskState[] = search.state ?? taskStates;
  const matching = wanted.reduce((n, s) => n + (all[s] ?? 0), 0);
  return (
    <>
      <div className={page.toolbar}>
        {groups.length > 1 && (
          <Select
            size="xs"
            aria-label="Stage"
            data={[{ value: "", label: "All stages" }, ...groups.map((g) => ({ value: g.name, label: g.name }))]}
            value={stage?.name ?? ""}
            onChange={(v) => set({ stage: v ?? undefined })}
            allowDeselect={false}
            searchable={groups.length > 10}
            w={170}
          />
        )}
        <MultiSelect
          size="xs"
          aria-label="States"
          placeholder={search.state?.length ? "" : "All states"}
          data={taskStates.filter((s) => (all[s] ?? 0) > 0 || search.state?.includes(s)).map((s) => ({ value: s, label: `${words(s)} (${count(all[s] ?? 0)})` }))}
          value={search.state ?? []}
          onChange={(v) => set({ state: v })}
          clearable
          miw={170}
        />
        <GoTo job={job} />
      </div>
      {list.status === "failed" ? (
        <ErrorState error={list.error} retry={() => void feed.load()} />
      ) : list.status === "loading" ? (
        <div className={jobs.skeleton} role="status" aria-label="Loading the tasks">
          {Array.from({ length: 6 }, (_, i) => (
            <Skeleton key={i} height={20} />
          ))}
        </div>
      ) : rows.length === 0 ? (
        <EmptyState
          icon={FilterX}
          title="No task matches"
          action={
            <Button variant="default" onClick={() => set({ state: undefined, stage: undefined })}>
              Show all tasks
            </Button>
          }
        >
          {search.state?.length ? `No task is ${search.state.map(words).join(" or ")} now.` : "The job has no tasks here."}
        </EmptyState>
      ) : (
        <>
          <DataTable
            id="job-tasks"
            label="Tasks"
            rows={rows}
            columns={columns}
            rowKey={(t) => t.id}
            rowHeight={phone ? 56 : 38}
            onOpen={(t) => void navigate({ to: "/tasks/$task", params: { task: t.id } })}
            sort={sort}
            onSort={(s) => set({ sort: s && `${s.desc ? "-" : ""}${s.by}` })}
            onEnd={() => void feed.more()}
            total={matching}
          />
          <Group gap="xs" mt={6} c="dimmed" fz="sm">
            <span>
              {count(rows.length)} of {count(Math.max(matching, rows.length))} tasks
              {list.loadingMore ? ", loading more…" : ""}
            </span>
            {sort && list.more && <span>· sorted among the loaded ones</span>}
            {rows.length >= maxTasks && <span>· filter, or enter a number, to see others</span>}
          </Group>
          <Incomplete error={list.error} retry={() => void feed.again()} />
        </>
      )}
    </>
  );
}

/** Opens a task by its number, or that of its element. */
function GoTo({ job }: { job: Job }) {
  const navigate = useNavigate();
  const [text, setText] = useState("");
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        const task = parseTask(job, text);
        if (task) void navigate({ to: "/tasks/$task", params: { task } });
      }}
    >
      <TextInput size="xs" w={130} value={text} onChange={(e) => setText(e.currentTarget.value)} placeholder="Task number" aria-label="Open a task by its number" leftSection={<Hash size={13} aria-hidden />} inputMode="numeric" error={text.trim() !== "" && parseTask(job, text) === undefined} />
    </form>
  );
}

function taskColumns(phone: boolean, stages: boolean, job: Job): Column<Task>[] {
  const what = (t: Task) => [stages && t.name, t.element].filter(Boolean).join(" · ") || t.name;
  const note = (t: Task) => (t.state === "failed" || t.state === "timed_out" ? [reasonOf(t), messageOf(t)].filter(Boolean).join(": ") : (t.step ?? t.message ?? ""));
  const id = (t: Task) => (
    <Link to="/tasks/$task" params={{ task: t.id }} className="link" tabIndex={-1}>
      {taskAddress(job, t)}
    </Link>
  );
  const state: Column<Task> = { id: "state", header: "State", width: "122px", sort: (t) => t.state, cell: (t) => <StateBadge state={t.state} /> };
  const took: Column<Task> = { id: "duration", header: "Duration", width: "84px", align: "right", sort: (t) => between(t.started_at, t.finished_at), cell: (t) => (t.started_at ? <Elapsed from={t.started_at} to={t.finished_at} /> : none) };
  if (phone) {
    return [
      {
        id: "id",
        header: "Task",
        width: "minmax(0, 1fr)",
        sort: (t) => t.index,
        cell: (t) => (
          <div className={jobs.two}>
            <span className="truncate">
              {id(t)} <span title={what(t)}>{what(t)}</span>
            </span>
            <span className={jobs.second}>
              <StateBadge state={t.state} compact />
              <span className="truncate">{note(t) || words(t.state)}</span>
            </span>
          </div>
        ),
      },
      took,
    ];
  }
  return [
    { id: "id", header: "Task", width: "minmax(76px, 100px)", sort: (t) => t.index, cell: id },
    { id: "element", header: stages ? "Stage and element" : "Element", width: "minmax(120px, 1.3fr)", sort: what, cell: (t) => <span title={what(t)}>{what(t)}</span> },
    state,
    { id: "progress", header: "Progress", width: "130px", minTable: 760, sort: (t) => t.progress, cell: (t) => (t.progress === undefined ? none : <ProgressBar value={t.progress} />) },
    { id: "note", header: "Step or reason", width: "minmax(120px, 1.6fr)", sort: (t) => note(t) || undefined, cell: (t) => <span title={note(t)}>{note(t) || none}</span> },
    { id: "worker", header: "Worker", width: "minmax(90px, 0.8fr)", minTable: 900, sort: (t) => t.worker_name ?? t.worker, cell: (t) => (t.worker ? <span title={`${t.worker_name ?? ""} ${t.worker}`.trim()}><WorkerLink id={t.worker} name={t.worker_name} /></span> : none) },
    { id: "attempt", header: "Attempts", width: "78px", align: "right", minTable: 820, sort: (t) => t.attempt, cell: (t) => t.attempt ?? none },
    took,
    { id: "metrics", header: "Metrics", width: "minmax(120px, 1fr)", optional: true, cell: (t) => Object.entries(t.metrics ?? {}).map(([k, v]) => `${k} ${digits(v)}`).join(", ") || none },
    { id: "exit", header: "Exit code", width: "76px", align: "right", optional: true, sort: (t) => t.exit_code, cell: (t) => t.exit_code ?? none },
    { id: "memory", header: "Peak memory", width: "96px", align: "right", optional: true, sort: (t) => number(t.usage?.memory_peak), cell: (t) => bytes(number(t.usage?.memory_peak)) },
    { id: "cost", header: "Cost", width: "76px", align: "right", optional: true, sort: (t) => t.usage?.cost, cell: (t) => cost(t.usage?.cost) },
  ];
}
