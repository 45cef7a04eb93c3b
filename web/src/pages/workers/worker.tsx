import { Alert, Badge, SegmentedControl, Skeleton, Stack, Tabs, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { Cpu, History, ListChecks, TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { get } from "@/api/client";
import { history as historyOf } from "@/api/hooks";
import { useSession } from "@/api/session";
import type { Worker, WorkerState } from "@/api/types";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { bytes, bytesOf, cost, count, energy, none, percent, watts, words } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { ProgressBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { Elapsed, TimeAgo } from "@/ui/time";
import { TimeChart } from "@/ui/TimeChart";
import { WorkerActions } from "./actions";
import { Bar, GPUGauge } from "./Gauge";
import { energyOf } from "./history";
import { connected, constrainedHelp, devices, grantText, outdated, reserved, size, troubles } from "./model";
import { ranges, type Range } from "./search";
import css from "./workers.module.css";

const route = getRouteApi("/workers/$worker");

export default function WorkerPage() {
  const { worker: id } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/workers/$worker" });
  const { me } = useSession();
  const query = useQuery({ ...get("/api/v1/workers/{worker}", { params: { path: { worker: id } } }, { live: [`worker:${id}`] }), refetchInterval: 5_000 });
  const worker = query.data;
  const crumbs = [{ label: "Workers", to: "/workers" }];
  if (!worker) {
    return (
      <>
        <PageHeader title="Worker" crumbs={crumbs} />
        {query.isError ? (
          <ErrorState error={query.error} retry={() => void query.refetch()} />
        ) : (
          <Stack role="status" aria-label="Loading the worker">
            <Skeleton h={20} w="min(420px, 80%)" />
            <Skeleton h={180} />
            <Skeleton h="30dvh" />
          </Stack>
        )}
      </>
    );
  }
  const tab = search.tab ?? "history";
  return (
    <>
      <PageHeader title={worker.name} crumbs={crumbs} badge={<StateBadge state={worker.state as WorkerState} />} actions={<WorkerActions worker={worker} />}>
        <Text c="dimmed" size="sm">
          <span className="mono">{worker.id}</span> · version <span className="mono">{worker.version ?? none}</span>
          {outdated(worker, me?.version) && <span className={css.warn}> (the server has {me?.version})</span>} · joined <TimeAgo at={worker.joined_at} /> · last seen <TimeAgo at={worker.last_seen_at} />
          {!connected(worker) && (worker.paused || worker.draining) && <> · comes back {worker.draining ? "draining" : "paused"}</>}
          {worker.deadline && (
            <>
              {" "}
              · {worker.draining ? "stops its tasks" : "resumes"} <TimeAgo at={worker.deadline} />
            </>
          )}
        </Text>
      </PageHeader>
      <Stack>
        {troubles(worker, me?.version).map((t) => (
          <Alert key={t.text} color={t.kind === "outdated" ? "gray" : "yellow"} variant="light" icon={<TriangleAlert size={18} aria-hidden />} title={<Text fw={600} c="var(--mantine-color-text)">{title(t.kind)}</Text>}>
            <Text size="sm" c="var(--mantine-color-text)">
              {t.text}
            </Text>
            {t.kind === "constrained" && (
              <Text size="sm" c="var(--mantine-color-text)" mt={4}>
                {constrainedHelp}
              </Text>
            )}
          </Alert>
        ))}
        <div className={css.columns}>
          <section className="card" aria-label="Now">
            <Now worker={worker} />
          </section>
          {devices(worker).length > 0 && (
            <section className="card" aria-label="GPUs">
              <Title order={2} mb={4}>
                GPUs
              </Title>
              {devices(worker).map((d) => (
                <GPUGauge key={d.gpu.uuid} device={d} />
              ))}
            </section>
          )}
        </div>
        <Tabs value={tab} onChange={(v) => void navigate({ search: (old) => ({ ...old, tab: v as typeof tab }), replace: true })} keepMounted={false}>
          <Tabs.List mb="md">
            <Tabs.Tab value="history" leftSection={<History size={15} aria-hidden />}>
              History
            </Tabs.Tab>
            <Tabs.Tab value="tasks" leftSection={<ListChecks size={15} aria-hidden />}>
              Tasks ({count(worker.running)})
            </Tabs.Tab>
            <Tabs.Tab value="hardware" leftSection={<Cpu size={15} aria-hidden />}>
              Hardware and rules
            </Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="history">
            <LoadHistory worker={worker} range={search.range ?? "1h"} onRange={(range) => void navigate({ search: (old) => ({ ...old, range }), replace: true })} />
          </Tabs.Panel>
          <Tabs.Panel value="tasks">
            <Tasks worker={worker} />
          </Tabs.Panel>
          <Tabs.Panel value="hardware">
            <Hardware worker={worker} />
          </Tabs.Panel>
        </Tabs>
      </Stack>
    </>
  );
}

function title(kind: string): string {
  return { unreachable: "Unreachable", quarantined: "A GPU is quarantined", avoided: "It gets no tasks for now", constrained: "It takes no new tasks", disk: "The disk is filling up", outdated: "Another version than the server" }[kind] ?? kind;
}

function Now({ worker }: { worker: Worker }) {
  const here = connected(worker);
  const given = reserved(worker);
  const memory = size(worker.resources.memory);
  const used = here ? size(worker.load?.memory) : undefined;
  const cpu = here ? worker.load?.cpu : undefined;
  const gpus = devices(worker);
  const power = gpus.some((d) => d.load?.power !== undefined) ? gpus.reduce((sum, d) => sum + (d.load?.power ?? 0), 0) : undefined;
  return (
    <Stack gap="xs">
      <Title order={2}>Now</Title>
      <Bar label="CPU" value={cpu} mark={given.cpus !== undefined && worker.resources.cpus > 0 ? given.cpus / worker.resources.cpus : undefined} text={`${percent(cpu)} of ${count(worker.resources.cpus)} cores`} />
      <Bar label="Memory" value={used !== undefined && memory ? used / memory : undefined} mark={given.memory !== undefined && memory ? given.memory / memory : undefined} text={bytesOf(used, memory)} />
      <Facts
        list={[
          ["Reserved by tasks", `${given.cpus === undefined ? none : Number(given.cpus.toFixed(2))} cores, ${bytes(given.memory)}`],
          ["Disk free", here ? bytesOf(size(worker.load?.disk?.free), size(worker.load?.disk?.total)) : none],
          ["Disk free for tasks", bytes(size(worker.free?.disk ?? worker.resources.disk))],
          ["Running tasks", count(worker.running)],
          ["Price per hour", cost(worker.price)],
          ...(gpus.length > 0 ? [["GPU power", watts(power)] as const] : []),
          ["Slots", worker.free ? `${count(worker.free.slots)} of ${count(worker.resources.slots)} free` : count(worker.resources.slots)],
        ]}
      />
    </Stack>
  );
}

function Facts({ list }: { list: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={css.facts}>
      {list.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function LoadHistory({ worker, range, onRange }: { worker: Worker; range: Range; onRange: (r: Range) => void }) {
  const query = useQuery(historyOf(range, worker.id, 360));
  const h = query.data;
  const times = h?.seconds ?? [];
  const values = (name: string) => h?.series[name] ?? times.map(() => null);
  const gpus = (worker.resources.gpus ?? []).length > 0;
  const sync = `worker-${worker.id}`;
  const memory = size(worker.resources.memory);
  return (
    <Stack>
      <SegmentedControl
        w="fit-content"
        aria-label="Range"
        value={range}
        onChange={(v) => onRange(v)}
        data={ranges.map((r) => ({ value: r, label: { "1h": "1 hour", "12h": "12 hours", "7d": "7 days" }[r] }))}
      />
      {query.isError && <ErrorState error={query.error} retry={() => void query.refetch()} />}
      {!h && !query.isError && <div aria-busy="true" style={{ minHeight: 200 }} />}
      {h && times.length === 0 && (
        <EmptyState icon={History} title="No history yet">
          The server keeps the load of each worker for a week, from its first heartbeat on.
        </EmptyState>
      )}
      {h && times.length > 0 && (
        <div className={css.columns}>
          <div className="card">
            <TimeChart title="CPU" times={times} series={[{ label: "CPU", values: values("cpu"), fill: true }]} format={percent} min={0} max={1} sync={sync} />
          </div>
          <div className="card">
            <TimeChart title="Memory" times={times} series={[{ label: "Memory", values: values("memory"), fill: true }]} format={bytes} min={0} max={memory} sync={sync} />
          </div>
          <div className="card">
            <TimeChart title="Running tasks" times={times} series={[{ label: "Tasks", values: values("running"), fill: true, step: true }]} min={0} sync={sync} />
          </div>
          {gpus && (
            <>
              <div className="card">
                <TimeChart title="GPU use (mean of all devices)" times={times} series={[{ label: "GPU", values: values("gpu"), fill: true }]} format={percent} min={0} max={1} sync={sync} />
              </div>
              <div className="card">
                <TimeChart title="VRAM" times={times} series={[{ label: "VRAM", values: values("gpu_memory"), fill: true }]} format={bytes} min={0} sync={sync} />
              </div>
              <div className="card">
                <TimeChart title="GPU power" times={times} series={[{ label: "Power", values: values("power"), fill: true }]} format={watts} min={0} sync={sync} />
                <Text size="sm" c="dimmed">
                  {energy(energyOf(values("power"), h.step))} in this time
                </Text>
              </div>
            </>
          )}
        </div>
      )}
    </Stack>
  );
}

/** Tasks that are shown with their progress. */
const shownTasks = 25;

function Tasks({ worker }: { worker: Worker }) {
  const ids = worker.tasks ?? [];
  if (ids.length === 0) {
    return (
      <EmptyState icon={ListChecks} title="No task runs here">
        {worker.state === "active" ? "It is ready for the next one that fits." : `It is ${words(worker.state)}.`}
      </EmptyState>
    );
  }
  return (
    <Stack gap="xs">
      {ids.slice(0, shownTasks).map((id) => (
        <TaskRow key={id} id={id} worker={worker} />
      ))}
      {worker.running > shownTasks && (
        <Text size="sm" c="dimmed">
          … and {count(worker.running - Math.min(ids.length, shownTasks))} more
        </Text>
      )}
    </Stack>
  );
}

function TaskRow({ id, worker }: { id: string; worker: Worker }) {
  const query = useQuery(get("/api/v1/tasks/{task}", { params: { path: { task: id } } }, { live: [`task:${id}`], every: 2_000 }));
  const task = query.data;
  const grant = grantText(task?.grant, worker);
  return (
    <div className="card" style={{ display: "grid", gridTemplateColumns: "repeat(auto-fit, minmax(140px, 1fr))", gap: 12, alignItems: "center" }}>
      <Link to="/tasks/$task" params={{ task: id }} className="link truncate">
        <span className="mono">{id}</span> {task?.name}
      </Link>
      {task && <StateBadge state={task.state} />}
      <span className="truncate" title={grant && `given: ${grant}`}>
        {grant}
      </span>
      <ProgressBar value={task?.progress} label={`progress of ${id}`} />
      <span className="truncate dim" title={task?.step}>
        {task?.step}
      </span>
      <Elapsed from={task?.started_at ?? task?.assigned_at} to={task?.finished_at} />
    </div>
  );
}

function Hardware({ worker }: { worker: Worker }) {
  const r = worker.resources;
  return (
    <div className={css.columns}>
      <section className="card">
        <Title order={2} mb="xs">
          Offered to tasks
        </Title>
        <Facts
          list={[
            ["Cores", count(r.cpus)],
            ["Memory", bytes(size(r.memory))],
            ["Disk", bytes(size(r.disk))],
            ["Slots", count(r.slots)],
            ...(r.max_tasks ? [["Tasks at once", count(r.max_tasks)] as const] : []),
            ["Address", worker.address ?? none],
            ...(worker.heartbeat ? [["Heartbeat", `every ${worker.heartbeat}`] as const] : []),
            ["Health", worker.health ? `${percent(worker.health.score)} (last: ${words(worker.health.reason)})` : "no failures of its own lately"],
            ...(worker.health ? [["Last failure", <TaskLink key="last" attempt={worker.health.attempt} />] as const] : []),
            ["Projects", (worker.projects ?? []).join(", ") || "all"],
          ]}
        />
        {(r.gpus ?? []).map((g) => (
          <Text key={g.uuid} size="sm" mt="xs">
            GPU {g.index}: {g.vendor} {g.name}, {bytes(size(g.memory))} <span className="mono dim">{g.uuid}</span>
            {g.parent && (
              <>
                {" "}
                part of <span className="mono dim">{g.parent}</span>
              </>
            )}
          </Text>
        ))}
      </section>
      <section className="card">
        <Title order={2} mb="xs">
          Tags and kinds
        </Title>
        <Chips label="Tags" list={worker.tags ?? []} />
        <Chips label="Kinds" list={worker.kinds ?? []} />
        <Chips label="Labels" list={Object.entries(worker.labels ?? {}).map(([k, v]) => `${k}=${v}`)} />
        <Chips label="Cannot carry out" list={worker.lacks ?? []} />
      </section>
      {worker.allow && (
        <section className="card">
          <Title order={2} mb="xs">
            What tasks may have here
          </Title>
          <Facts list={Object.entries(worker.allow).map(([name, value]) => [words(name), typeof value === "object" ? <span className="mono">{JSON.stringify(value)}</span> : String(value)] as const)} />
        </section>
      )}
    </div>
  );
}

function TaskLink({ attempt }: { attempt: string }) {
  const task = attempt.split("#")[0] ?? attempt;
  return (
    <Link to="/tasks/$task" params={{ task }} className="link mono">
      {attempt}
    </Link>
  );
}

function Chips({ label, list }: { label: string; list: readonly string[] }) {
  if (list.length === 0) return null;
  return (
    <div style={{ marginBottom: 10 }}>
      <Text size="sm" c="dimmed" mb={4}>
        {label}
      </Text>
      <div className={css.tags}>
        {list.map((t) => (
          <Badge key={t} variant="default" tt="none" fw={400} maw="100%">
            {t}
          </Badge>
        ))}
      </div>
    </div>
  );
}
