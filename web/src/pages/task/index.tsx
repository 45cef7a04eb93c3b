import { Skeleton, Stack, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { ChartLine, Container, FileBox, History, ListOrdered, ScrollText } from "lucide-react";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { get } from "@/api/client";
import { finalStates, type Attempt, type Task } from "@/api/types";
import { PagePending } from "@/app/RouteStates";
import { ErrorState } from "@/ui/feedback";
import { PageHeader } from "@/ui/PageHeader";
import { numberOf } from "./attempt";
import { Explain } from "./Explain";
import { Failure, type Ending } from "./Failure";
import { Header } from "./Header";
import { LogTab } from "./log/LogTab";
import type { TaskSearch, TaskTab } from "./search";
import css from "./task.module.css";

const MetricsTab = lazy(() => import("./charts/MetricsTab").then((m) => ({ default: m.MetricsTab })));
const Artifacts = lazy(() => import("./files/Artifacts").then((m) => ({ default: m.Artifacts })));
const Attempts = lazy(() => import("./Attempts").then((m) => ({ default: m.Attempts })));
const Environment = lazy(() => import("./Environment").then((m) => ({ default: m.Environment })));
const Events = lazy(() => import("./Events").then((m) => ({ default: m.Events })));

const tabs: readonly { value: TaskTab; label: string; icon: typeof ChartLine }[] = [
  { value: "log", label: "Log", icon: ScrollText },
  { value: "metrics", label: "Metrics", icon: ChartLine },
  { value: "artifacts", label: "Artifacts", icon: FileBox },
  { value: "attempts", label: "Attempts", icon: History },
  { value: "environment", label: "Environment", icon: Container },
  { value: "events", label: "Events", icon: ListOrdered },
];

export default function TaskPage() {
  const { task } = useParams({ from: "/tasks/$task" });
  return <OneTask key={task} id={task} />;
}

function OneTask({ id }: { id: string }) {
  const search = useSearch({ from: "/tasks/$task" });
  const path = { params: { path: { task: id } } };
  const live = { live: [`task:${id}`] };
  const { data: task, error, refetch } = useQuery(get("/api/v1/tasks/{task}", path, { ...live, every: 500 }));
  if (error && (!task || !sameTask(task, id))) {
    return (
      <>
        <PageHeader title={`Task ${id}`} crumbs={[{ label: "Jobs", to: "/jobs" }]} />
        <ErrorState error={error} retry={() => void refetch()} />
      </>
    );
  }
  if (!task || !sameTask(task, id)) {
    return (
      <Stack role="status" aria-label="Loading the task">
        <Skeleton h={16} w={140} />
        <Skeleton h={30} w="min(420px, 80%)" />
        <Skeleton h={52} />
        <Skeleton h="45dvh" />
      </Stack>
    );
  }
  return <Shown task={task} search={search} />;
}

// The data of the former task is kept while another one loads.
const sameTask = (task: Task, id: string) => task.id === id;

function Shown({ task, search }: { task: Task; search: TaskSearch }) {
  const navigate = useNavigate({ from: "/tasks/$task" });
  const live = { live: [`task:${task.id}`] };
  const job = useQuery({ ...get("/api/v1/jobs/{job}", { params: { path: { job: String(task.job) } } }), staleTime: 30_000 });
  const attempts = useQuery(get("/api/v1/tasks/{task}/attempts", { params: { path: { task: task.id } } }, live));

  const list = attempts.data?.attempts ?? [];
  const last = task.attempt ?? 0;
  const number = Math.min(search.attempt ?? last, last);
  const attempt = list.find((a) => numberOf(a) === number);
  const state = task.state;
  const final = finalStates.includes(state);
  const live_ = !final && number === last && last > 0;
  const failed = endingOf(task, attempt, number === last, final);
  const waits = state === "waiting" || state === "queued" || state === "assigned";
  const workerName = (id: string) => [task, ...list].find((x) => x.worker === id)?.worker_name ?? id;

  // What matters most when the page was opened; it does not change under the reader.
  const [usual] = useState<TaskTab>(() => (!final && last > 0 && Object.keys(task.metrics ?? {}).length > 0 ? "metrics" : last === 0 && waits ? "environment" : "log"));
  const tab = search.tab ?? (search.at !== undefined || search.q ? "log" : search.file ? "artifacts" : usual);
  const artifacts = (number === last ? task.artifacts : attempt?.artifacts) ?? [];
  // On a phone the selected tab may be outside of the view.
  const bar = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const chosen = bar.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (bar.current && chosen) bar.current.scrollLeft = chosen.offsetLeft + chosen.offsetWidth / 2 - bar.current.clientWidth / 2;
  }, [tab]);
  const counts: Partial<Record<TaskTab, number>> = { artifacts: artifacts.length, attempts: list.length > 1 ? list.length : 0 };
  return (
    <>
      <Header task={task} job={job.data} attempts={list} former={number < last ? attempt : undefined} search={search} workerName={workerName} />
      <Stack gap="md">
        {waits && <Explain task={task.id} />}
        {failed && <Failure key={number} task={task.id} attempt={number} ending={failed} />}
        <Tabs value={tab} onChange={(v) => void navigate({ search: (s) => ({ ...(s.attempt !== undefined && { attempt: s.attempt }), tab: v }) as TaskSearch })} keepMounted={false}>
          <div ref={bar} className={css.tabs}>
            <Tabs.List aria-label="Parts of the task">
              {tabs.map((t) => (
                <Tabs.Tab key={t.value} value={t.value} leftSection={<t.icon size={15} aria-hidden />} rightSection={counts[t.value] ? <span className="dim">{counts[t.value]}</span> : undefined}>
                  {t.label}
                </Tabs.Tab>
              ))}
            </Tabs.List>
          </div>
          <Suspense fallback={<PagePending />}>
            <Tabs.Panel value={tab} pt="md">
              {tab === "log" && <LogTab key={`${number}`} task={task.id} attempt={number} live={live_} search={search} />}
              {tab === "metrics" && <MetricsTab task={task} attempts={list} live={!final} search={search} />}
              {tab === "artifacts" && <Artifacts task={task} artifacts={artifacts} attempt={search.attempt} live={live_} search={search} />}
              {tab === "attempts" && <Attempts task={task.id} attempts={list} workerName={workerName} />}
              {tab === "environment" && <Environment task={task} image={attempt?.image ?? task.image} />}
              {tab === "events" && <Events task={task.id} workerName={workerName} />}
            </Tabs.Panel>
          </Suspense>
        </Tabs>
      </Stack>
    </>
  );
}

const failures: readonly string[] = ["failed", "timed_out", "lost", "rejected"];

/** How the attempt that is shown failed, if it did. */
function endingOf(task: Task, attempt: Attempt | undefined, last: boolean, final: boolean): Ending | undefined {
  if (last && final) {
    const state = task.state;
    if (!failures.includes(state) && !(state === "skipped" || (state === "cancelled" && task.reason && task.reason !== "cancelled_by_user"))) return undefined;
    return { outcome: state, reason: task.reason, message: task.message, exitCode: task.exit_code };
  }
  if (!attempt?.outcome || !failures.includes(attempt.outcome)) return undefined;
  return { outcome: attempt.outcome, reason: attempt.reason, message: attempt.message, exitCode: attempt.exit_code };
}
