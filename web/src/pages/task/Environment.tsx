import { Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, type ReactNode } from "react";
import { get } from "@/api/client";
import { ApiError } from "@/api/error";
import { useCan } from "@/api/session";
import type { Task, Worker } from "@/api/types";
import { CopyButton } from "@/ui/CopyLine";
import { ErrorState } from "@/ui/feedback";
import { bytes, cost, digits, none } from "@/ui/format";
import { StateBadge } from "@/ui/StateBadge";
import { WorkerLink } from "@/ui/WorkerLink";
import { specQuery } from "./api";

const Yaml = lazy(() => import("./Yaml"));

function Pending({ pending, children }: { pending: boolean; children?: ReactNode }) {
  return (
    <Text c="dimmed" {...(pending && { role: "status", "aria-label": "Loading" })}>
      {pending ? "Loading" : children}
    </Text>
  );
}

/** In what the task runs: what it was given, on which machine, and from which spec. */
export function Environment({ task, image }: { task: Task; image: string | undefined }) {
  const spec = useQuery(specQuery(task.id));
  const sees = useCan("see workers");
  const worker = useQuery({ ...get("/api/v1/workers/{worker}", { params: { path: { worker: task.worker ?? "" } } }), enabled: sees && !!task.worker, retry: false });
  const answer = spec.data;
  const env = (answer?.spec.env ?? {}) as Readonly<Record<string, string>>;
  const python = answer?.spec.python;
  return (
    <div style={{ display: "grid", gridTemplateColumns: "repeat(auto-fit, minmax(min(100%, 380px), 1fr))", gap: 12, alignItems: "start" }}>
      <Stack gap={12}>
        <Card title="Granted resources">
          {task.grant ? <Granted task={task} worker={worker.data} /> : <Text c="dimmed">Nothing yet: a worker gives it resources when it takes the task.</Text>}
        </Card>
        <Card title="Worker">
          {!task.worker ? (
            <Text c="dimmed">No worker has it.</Text>
          ) : worker.data ? (
            <WorkerFacts worker={worker.data} />
          ) : (
            <Text>
              <span className="mono">{task.worker}</span>
              {worker.error && <Text component="span" c="dimmed">: {unknownWorker(worker.error)}</Text>}
            </Text>
          )}
        </Card>
        <Card title="Image and runtime">
          <Facts
            rows={[
              ["Kind", <span key="k" className="mono">{task.kind}</span>],
              ["Image", text(image ?? answer?.image ?? answer?.spec.image)],
              ["Python", python && [python.version, python.project, ...(python.extras ?? []), ...(python.groups ?? []), ...(python.packages ?? []), python.requirements].filter(Boolean).join(", ")],
              ["Isolation", text(answer?.spec.isolation)],
              ["Network", text(answer?.spec.network)],
              ["Checkpoint", task.checkpoint ? <span key="c" className="mono">{task.checkpoint.slice(0, 16)}…</span> : undefined],
            ]}
          />
        </Card>
        <Card title="Environment variables">
          {Object.keys(env).length === 0 ? (
            <Pending pending={spec.isPending}>The spec sets none. Muster adds MUSTER_JOB, MUSTER_TASK, MUSTER_INDEX and others.</Pending>
          ) : (
            <Facts rows={Object.entries(env).map(([k, v]) => [k, <span key={k} className="mono">{v}</span>])} mono />
          )}
        </Card>
      </Stack>
      <Card title="Spec" aside={answer?.spec && <Suspense><Yaml value={answer.spec} button /></Suspense>}>
        {spec.error && !answer ? (
          <ErrorState error={spec.error} retry={() => void spec.refetch()} title="The spec could not be loaded" />
        ) : answer?.spec ? (
          <Suspense fallback={<Pending pending />}>
            {!answer.resolved && (
              <Text size="sm" c="dimmed" mb={6}>
                References to other stages are resolved when those have finished.
              </Text>
            )}
            <Yaml value={answer.spec} />
          </Suspense>
        ) : (
          <Pending pending={spec.isPending}>{none}</Pending>
        )}
      </Card>
    </div>
  );
}

/** Why nothing more is known of a worker. */
export function unknownWorker(error: Error): string {
  return error instanceof ApiError && error.status === 404 ? "it has been removed" : `it could not be looked up: ${error.message}`;
}

function text(v: string | undefined): ReactNode {
  return v ? <span className="mono">{v}</span> : undefined;
}

function Card({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <div style={{ display: "flex", alignItems: "center", justifyContent: "space-between", minHeight: 28, marginBottom: 6 }}>
        <Title order={2}>{title}</Title>
        {aside}
      </div>
      {children}
    </section>
  );
}

function Facts({ rows, mono = false }: { rows: readonly (readonly [string, ReactNode])[]; mono?: boolean }) {
  const known = rows.filter(([, v]) => v !== undefined && v !== null && v !== "");
  return (
    <Table verticalSpacing={4} horizontalSpacing={0} withRowBorders={false} fz="sm" layout="fixed">
      <Table.Tbody>
        {known.map(([k, v]) => (
          <Table.Tr key={k}>
            <Table.Th fw={400} w="38%" c="dimmed" className={mono ? "mono" : undefined} style={{ verticalAlign: "top" }} pr={10}>
              {k}
            </Table.Th>
            <Table.Td>{v}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Granted({ task, worker }: { task: Task; worker: Worker | undefined }) {
  const g = task.grant;
  if (!g) return null;
  const devices = worker?.resources.gpus ?? [];
  return (
    <Facts
      rows={[
        ["CPU", g.cpus ? `${digits(g.cpus)} cores` : g.slots ? `${g.slots} ${g.slots === 1 ? "slot" : "slots"}` : undefined],
        ["Memory", g.memory ? bytes(g.memory) : "no limit"],
        ["Disk", g.disk ? bytes(g.disk) : "no limit"],
        ["Processes", g.pids ? digits(g.pids) : undefined],
        ["GPU memory", g.gpu_memory ? `${bytes(g.gpu_memory)} of each device` : undefined],
        ...(g.gpus ?? []).map((uuid, i): [string, ReactNode] => {
          const d = devices.find((v) => v?.uuid === uuid);
          return [
            `GPU ${i}`,
            <span key={uuid} style={{ display: "flex", alignItems: "center", gap: 4 }}>
              <span style={{ minWidth: 0 }}>
                {d && <span>{d.name}, {bytes(d.memory)} </span>}
                <span className="mono dim">{uuid}</span>
              </span>
              <CopyButton text={uuid} label="Copy the UUID" />
            </span>,
          ];
        }),
      ]}
    />
  );
}

function WorkerFacts({ worker: w }: { worker: Worker }) {
  const r = w.resources;
  return (
    <Facts
      rows={[
        ["Name", <WorkerLink key="n" id={w.id} name={w.name} />],
        ["State", <StateBadge key="s" state={w.state as "active"} />],
        ["Version", w.version],
        ["Offers", `${digits(r.cpus)} cores, ${bytes(r.memory)} memory, ${bytes(r.disk)} disk`],
        ["GPUs", (r.gpus ?? []).map((d) => d?.name).join(", ") || "none"],
        ["Price", w.price ? `${cost(w.price)} an hour` : undefined],
        ["Tags", (w.tags ?? []).join(", ")],
      ]}
    />
  );
}
