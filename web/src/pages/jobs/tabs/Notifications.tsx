import { useQuery } from "@tanstack/react-query";
import { Bell, CircleCheck, CircleX, Clock } from "lucide-react";
import { useMemo } from "react";
import { get } from "@/api/client";
import type { components } from "@/api/schema";
import { DataTable, type Column } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { none, words } from "@/ui/format";
import { TimeAgo } from "@/ui/time";
import type { TabProps } from "../job";

type Delivery = components["schemas"]["Delivery"];

const icons = { delivered: <CircleCheck size={14} color="var(--state-succeeded)" aria-hidden />, failed: <CircleX size={14} color="var(--state-failed)" aria-hidden />, pending: <Clock size={14} color="var(--state-queued)" aria-hidden /> };

/** The requests to webhooks that this job caused. */
export default function Notifications({ job }: TabProps) {
  const query = useQuery(get("/api/v1/jobs/{job}/notifications", { params: { path: { job: String(job.id) }, query: { limit: 200 } } }, { live: [`job:${job.id}`], every: 3_000 }));
  const columns = useMemo(
    (): Column<Delivery>[] => [
      { id: "event", header: "Event", width: "minmax(110px, 1fr)", sort: (d) => d.event, cell: (d) => words(d.event.replace("job.", "")) },
      {
        id: "state",
        header: "State",
        width: "110px",
        sort: (d) => d.state,
        cell: (d) => (
          <span style={{ display: "inline-flex", alignItems: "center", gap: 5 }}>
            {icons[d.state]} {d.state}
          </span>
        ),
      },
      { id: "host", header: "Receiver", width: "minmax(120px, 1.4fr)", sort: (d) => d.host, cell: (d) => <span title={d.host}>{d.preset ? `${d.preset} · ${d.host}` : d.host}</span> },
      { id: "attempts", header: "Attempts", width: "80px", align: "right", minTable: 620, cell: (d) => d.attempts },
      { id: "answer", header: "Last answer", width: "minmax(110px, 1.6fr)", minTable: 620, cell: (d) => <span title={d.error}>{d.error ?? (d.status ? `HTTP ${d.status}` : none)}</span> },
      { id: "created", header: "Created", width: "92px", minTable: 480, sort: (d) => d.created_at, cell: (d) => <TimeAgo at={d.created_at} /> },
      { id: "next", header: "Next attempt", width: "100px", minTable: 900, cell: (d) => (d.next_at ? <TimeAgo at={d.next_at} /> : none) },
    ],
    [],
  );
  if (query.error && !query.data) return <ErrorState error={query.error} retry={() => void query.refetch()} />;
  const rows = query.data?.deliveries ?? [];
  if (rows.length === 0) {
    return (
      <EmptyState icon={Bell} title="Nothing was sent yet">
        The spec names {job.spec?.notify?.length ?? 0} receivers. What is sent to them when the job ends, fails or waits long is listed here, with the answers.
      </EmptyState>
    );
  }
  return <DataTable id="job-notifications" label="Notifications" rows={rows} columns={columns} rowKey={(d) => d.id} />;
}
