import { Link } from "@tanstack/react-router";
import { finished, shownState, total, type Job } from "@/api/types";
import type { Column } from "@/ui/DataTable";
import { between, cost, none, percent, short } from "@/ui/format";
import { CountsBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { Elapsed, TimeAgo } from "@/ui/time";
import css from "./jobs.module.css";

/** The name of the key that submitted a job, or its id if the key was deleted. */
export const ownerOf = (j: Job) => j.owner_name ?? j.owner;
export const labelsOf = (j: Job) => Object.entries(j.labels ?? {}).map(([k, v]) => `${k}=${v}`);

/** The share of a job that is done. */
const shareOf = (j: Job) => j.progress ?? finished(j.counts) / Math.max(1, total(j.counts));

/** The columns of the list; a phone has two, with two lines in a row. */
export function jobColumns(phone: boolean, left: ReadonlySet<number>): Column<Job>[] {
  const progress: Column<Job> = {
    id: "progress",
    header: "Progress",
    width: phone ? "minmax(96px, 0.7fr)" : "minmax(150px, 1.4fr)",
    cell: (j) => {
      const [done, all] = [finished(j.counts), total(j.counts)];
      // Long numbers leave no room for the bar; its title has them.
      const text = phone ? percent(shareOf(j)) : all > 9_999 ? `${short(done)}/${short(all)}` : undefined;
      return <CountsBar counts={j.counts} progress={j.progress} {...(text && { text })} />;
    },
    sort: shareOf,
  };
  const name = (j: Job) => (
    <Link to="/jobs/$job" params={{ job: String(j.id) }} className="link truncate" title={j.name} style={{ display: "block", ...(left.has(j.id) && { opacity: 0.6 }) }} tabIndex={-1}>
      {j.name}
    </Link>
  );
  if (phone) {
    return [
      {
        id: "name",
        header: "Job",
        width: "minmax(0, 1.3fr)",
        sort: (j) => j.name,
        cell: (j) => (
          <div className={css.two}>
            {name(j)}
            <span className={css.second}>
              <StateBadge state={shownState(j)} compact /> {j.id} · <TimeAgo at={j.created_at} />
            </span>
          </div>
        ),
      },
      progress,
    ];
  }
  return [
    { id: "id", header: "ID", width: "72px", cell: (j) => <span className="dim">{j.id}</span>, sort: (j) => j.id },
    { id: "name", header: "Name", width: "minmax(150px, 2fr)", cell: name, sort: (j) => j.name },
    {
      id: "state",
      header: "State",
      width: "124px",
      sort: (j) => j.state,
      cell: (j) => (
        <span title={left.has(j.id) ? "It does not match the filters any more" : undefined}>
          <StateBadge state={shownState(j)} />
        </span>
      ),
    },
    progress,
    { id: "project", header: "Project", width: "minmax(80px, 0.8fr)", minTable: 900, sort: (j) => j.project, cell: (j) => <Filter field="project" value={j.project} /> },
    { id: "owner", header: "Owner", width: "minmax(80px, 0.8fr)", minTable: 1020, sort: ownerOf, cell: (j) => <Filter field="owner" value={j.owner} name={ownerOf(j)} /> },
    { id: "kind", header: "Kind", width: "minmax(80px, 0.7fr)", optional: true, sort: (j) => j.kind, cell: (j) => <Filter field="kind" value={j.kind} /> },
    { id: "priority", header: "Priority", width: "70px", align: "right", optional: true, sort: (j) => j.priority, cell: (j) => j.priority },
    {
      id: "labels",
      header: "Labels",
      width: "minmax(100px, 1fr)",
      optional: true,
      sort: (j) => labelsOf(j).join(" ") || undefined,
      cell: (j) => <span title={labelsOf(j).join("\n")}>{labelsOf(j).join(", ") || none}</span>,
    },
    { id: "created", header: "Created", width: "92px", minTable: 700, sort: (j) => j.created_at, cell: (j) => <TimeAgo at={j.created_at} /> },
    { id: "duration", header: "Duration", width: "92px", align: "right", minTable: 620, sort: (j) => between(j.started_at, j.finished_at), cell: (j) => (j.started_at ? <Elapsed from={j.started_at} to={j.finished_at} /> : none) },
    { id: "cost", header: "Cost", width: "76px", align: "right", minTable: 980, sort: (j) => j.cost, cell: (j) => cost(j.cost) },
  ];
}

/** A value that filters the list on a click; owners have names and ids. */
function Filter({ field, value, name = value }: { field: "project" | "owner" | "kind"; value: string | undefined; name?: string | undefined }) {
  if (!value) return none;
  return (
    <Link to="/jobs" from="/jobs" search={(s) => ({ ...s, [field]: value })} className={css.filter} title={`${name === value ? value : `${name} (${value})`}: show only this ${field}`} tabIndex={-1}>
      {name}
    </Link>
  );
}
