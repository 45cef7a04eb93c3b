import { Button, Skeleton } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { Gpu, Search } from "lucide-react";
import { useMemo } from "react";
import { useGPUs } from "@/api/hooks";
import type { OverviewGPU, Worker } from "@/api/types";
import { DataTable, type Column } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { bytes, bytesOf, count, none, percent, watts } from "@/ui/format";
import { Bar } from "./Gauge";
import { filterGPUs } from "./model";
import css from "./workers.module.css";

const vram = (g: OverviewGPU) => (g.memory_used !== undefined && g.memory > 0 ? g.memory_used / g.memory : undefined);

const columns: Column<OverviewGPU>[] = [
  {
    id: "worker",
    header: "Worker",
    width: "minmax(120px, 1.2fr)",
    sort: (g) => `${g.worker_name} ${g.index}`,
    cell: (g) => (
      <Link to="/workers/$worker" params={{ worker: g.worker }} className="link truncate" title={g.worker_name} tabIndex={-1}>
        {g.worker_name}
      </Link>
    ),
  },
  { id: "index", header: "GPU", width: "60px", align: "right", sort: (g) => g.index, cell: (g) => g.index },
  { id: "model", header: "Model", width: "minmax(140px, 1.2fr)", minTable: 760, sort: (g) => g.name, cell: (g) => <span title={g.uuid}>{g.name}</span> },
  { id: "use", header: "Use", width: "minmax(110px, 1fr)", sort: (g) => g.utilization, cell: (g) => <Bar label="use" compact value={g.utilization} text={percent(g.utilization)} hint={`of GPU ${g.index} of ${g.worker_name}`} /> },
  { id: "vram", header: "VRAM", width: "minmax(140px, 1fr)", minTable: 520, sort: vram, cell: (g) => <Bar label={bytes(g.memory)} compact value={vram(g)} text={percent(vram(g))} hint={`${bytesOf(g.memory_used, g.memory)} in use`} /> },
  { id: "temperature", header: "°C", width: "60px", align: "right", minTable: 620, sort: (g) => g.temperature, cell: (g) => (g.temperature === undefined ? none : Math.round(g.temperature)) },
  { id: "power", header: "Power", width: "76px", align: "right", minTable: 860, sort: (g) => g.power, cell: (g) => watts(g.power) },
  { id: "tasks", header: "Tasks", width: "70px", align: "right", minTable: 420, sort: (g) => g.tasks, cell: (g) => count(g.tasks) },
  {
    id: "quarantined",
    header: "Quarantined",
    width: "minmax(110px, 1fr)",
    minTable: 980,
    sort: (g) => g.quarantined,
    cell: (g) => (g.quarantined ? <span className={`${css.warn} truncate`} title={g.quarantined}>{g.quarantined}</span> : <span className="dim">no</span>),
  },
  { id: "uuid", header: "UUID", optional: true, sort: (g) => g.uuid, cell: (g) => <span className="mono truncate" title={g.uuid}>{g.uuid}</span> },
];

const byWorker = { by: "worker", desc: false };

/** The devices of some workers, one a row: which is free, full or hot. Words of the search may be of the device or of its worker. */
export function GPUTable({ workers, q, onShowAll }: { workers: readonly Worker[]; q: string | undefined; onShowAll: () => void }) {
  const navigate = useNavigate();
  const query = useGPUs();
  const shown = useMemo(() => filterGPUs(query.data ?? [], workers, q ?? ""), [query.data, workers, q]);
  if (query.isPending) return <Skeleton h="45dvh" role="status" aria-label="Loading the GPUs" />;
  if (!query.data) return <ErrorState error={query.error} retry={() => void query.refetch()} />;
  if (query.data.length === 0) {
    return (
      <EmptyState icon={Gpu} title="No GPUs">
        No connected worker offers a GPU. On a machine that has one, <span className="mono">muster doctor</span> says what is missing.
      </EmptyState>
    );
  }
  if (shown.length === 0) {
    return (
      <EmptyState icon={Search} title="No GPU matches" action={<Button variant="default" onClick={onShowAll}>Show all</Button>}>
        {count(query.data.length)} GPUs are hidden by the filters.
      </EmptyState>
    );
  }
  return <DataTable id="gpus" label="GPUs" rows={shown} columns={columns} rowKey={(g) => `${g.worker} ${g.uuid}`} sort={byWorker} onOpen={(g) => void navigate({ to: "/workers/$worker", params: { worker: g.worker } })} />;
}
