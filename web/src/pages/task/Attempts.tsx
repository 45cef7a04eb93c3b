import { Anchor, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { History } from "lucide-react";
import type { Attempt } from "@/api/types";
import { DataTable, type Column } from "@/ui/DataTable";
import { EmptyState } from "@/ui/feedback";
import { bytes, cost, dateTime, digits, energy, none, percent } from "@/ui/format";
import { StateBadge } from "@/ui/StateBadge";
import { Elapsed } from "@/ui/time";
import { WorkerLink } from "@/ui/WorkerLink";
import { numberOf } from "./attempt";
import { exitText, plainReason } from "./reasons";

const columns = (task: string, workerName: (id: string) => string): Column<Attempt>[] => [
  { id: "n", header: "Attempt", width: "64px", cell: (a) => <Anchor component={Link} to="/tasks/$task" params={{ task } as never} search={{ tab: "log", attempt: numberOf(a) } as never} size="sm">{numberOf(a)}</Anchor>, sort: numberOf },
  { id: "outcome", header: "Outcome", width: "120px", cell: (a) => <StateBadge state={a.outcome ? (a.outcome as "failed") : a.started_at ? "running" : "assigned"} />, sort: (a) => a.outcome ?? "" },
  { id: "reason", header: "Why", width: "minmax(160px, 3fr)", cell: (a) => <span title={plainReason(a.reason)?.what}>{why(a)}</span> },
  { id: "worker", header: "Worker", width: "minmax(100px, 1fr)", minTable: 560, cell: (a) => (a.worker ? <WorkerLink id={a.worker} name={workerName(a.worker)} /> : none) },
  { id: "started", header: "Started", width: "170px", minTable: 1000, cell: (a) => dateTime(a.started_at), sort: (a) => a.started_at ?? "" },
  { id: "took", header: "Took", width: "90px", align: "right", cell: (a) => <Elapsed from={a.started_at} to={a.finished_at} />, sort: (a) => a.usage?.wall_seconds },
  { id: "cpu", header: "CPU", width: "80px", align: "right", minTable: 980, cell: (a) => digits(a.usage?.cpu_avg, 2), sort: (a) => a.usage?.cpu_avg },
  { id: "memory", header: "Memory peak", width: "100px", align: "right", minTable: 760, cell: (a) => bytes(a.usage?.memory_peak), sort: (a) => a.usage?.memory_peak },
  { id: "gpu", header: "GPU", width: "60px", align: "right", minTable: 1080, cell: (a) => percent(a.usage?.gpu_avg), sort: (a) => a.usage?.gpu_avg },
  { id: "energy", header: "Energy", width: "80px", align: "right", minTable: 1180, cell: (a) => energy(a.usage?.energy_wh), sort: (a) => a.usage?.energy_wh },
  { id: "cost", header: "Cost", width: "70px", align: "right", minTable: 680, cell: (a) => cost(a.usage?.cost), sort: (a) => a.usage?.cost },
];

function why(a: Attempt): string {
  if (a.reason === "exit_code" && a.exit_code !== undefined) return `exit code ${exitText(a.exit_code)}`;
  return a.message || (plainReason(a.reason)?.what ?? "");
}

export function Attempts({ task, attempts, workerName }: { task: string; attempts: readonly Attempt[]; workerName: (id: string) => string }) {
  if (attempts.length === 0) {
    return (
      <div className="card">
        <EmptyState icon={History} title="Not started yet">
          Each time a worker takes the task, it is listed here.
        </EmptyState>
      </div>
    );
  }
  return (
    <>
      <DataTable id="attempts" label="Attempts" rows={[...attempts].reverse()} columns={columns(task, workerName)} rowKey={(a) => a.id} />
      {attempts.length > 1 && (
        <Text size="sm" c="dimmed" mt={8}>
          The newest attempt is first. Only one attempt's result is ever accepted.
        </Text>
      )}
    </>
  );
}
