import { CloseButton, Select, Skeleton, Switch } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";
import { get } from "@/api/client";
import type { Job } from "@/api/types";
import { finished, total } from "@/api/types";
import { ErrorState } from "@/ui/feedback";
import { between, bytes, cost, count, dateTime, digits, duration, energy, none, plural } from "@/ui/format";
import { StateBadge } from "@/ui/StateBadge";
import { toYAML } from "@/ui/yaml";
import page from "./job.module.css";
import { resultRows, specRows, type Row } from "./model/compare";
import { changes, diffLines } from "./model/diff";
import { bestOf } from "./model/results";
import css from "./spec.module.css";
import { SpecDiff } from "./SpecText";

const sample = 1000;

/** Jobs side by side: how they ran, what differs in their specs, what came out. */
export function JobsCompared({ ids, onRemove }: { ids: readonly number[]; onRemove?: (id: number) => void }) {
  const jobs = useQueries({ queries: ids.map((id) => get("/api/v1/jobs/{job}", { params: { path: { job: String(id) } } }, { live: [`job:${id}`], every: 3_000 })), combine: (r) => ({ data: r.map((q) => q.data), error: r.map((q) => q.error) }) });
  const usage = useQueries({ queries: ids.map((id) => get("/api/v1/jobs/{job}/usage", { params: { path: { job: String(id) } } }, { live: [`job:${id}`], every: 3_000 })), combine: (r) => r.map((q) => q.data) });
  const tasks = useQueries({
    queries: ids.map((id) => get("/api/v1/jobs/{job}/tasks", { params: { path: { job: String(id) }, query: { limit: sample } } }, { live: [`job:${id}`], every: 5_000 })),
    combine: (r) => r.map((q) => q.data?.tasks),
  });
  const list = jobs.data;
  const known = list.filter((j) => j !== undefined);
  const spec = useMemo(() => specRows(list.map((j) => j?.spec)), [list]);
  const results = useMemo(() => resultRows(tasks.map((t) => ({ tasks: t ?? [] }))), [tasks]);
  const [all, setAll] = useState(false);
  const [pair, setPair] = useState<string>();
  const other = known.find((j) => String(j.id) === pair) ?? known[1];
  const base = known[0];
  const lines = base?.spec && other?.spec ? diffLines(toYAML(base.spec), toYAML(other.spec)) : undefined;

  const wrong = ids.map((id, i) => ({ id, error: jobs.error[i], missing: list[i] === undefined })).filter((x) => x.error && x.missing);
  if (known.length === 0 && wrong.length === 0) return <Skeleton height={240} role="status" aria-label="Loading the jobs" />;
  const about: { name: string; of: (j: Job, i: number) => ReactNode }[] = [
    { name: "State", of: (j) => <StateBadge state={j.state} /> },
    { name: "Tasks", of: (j) => `${count(finished(j.counts))} of ${count(total(j.counts))} ended${(j.counts.failed ?? 0) > 0 ? `, ${count(j.counts.failed)} failed` : ""}` },
    { name: "Created", of: (j) => dateTime(j.created_at) },
    { name: "Took", of: (j) => duration(j.finished_at ? between(j.started_at, j.finished_at) : undefined) },
    { name: "Cost", of: (_, i) => cost(usage[i]?.cost) },
    { name: "Energy", of: (_, i) => energy(usage[i]?.energy_wh || undefined) },
    { name: "CPU time", of: (_, i) => duration(usage[i]?.cpu_seconds) },
    { name: "Peak memory", of: (_, i) => bytes(usage[i]?.memory_peak || undefined) },
  ];
  const shown = all ? results : results.filter((r) => r.differs);
  const head = (
    <thead>
      <tr>
        <td />
        {ids.map((id, i) => (
          <th key={id} scope="col">
            <span style={{ display: "flex", alignItems: "flex-start", gap: 6 }}>
              <Link to="/jobs/$job" params={{ job: String(id) }} className="link" title={list[i]?.name}>
                {id} <span className={css.clip}>{list[i]?.name ?? ""}</span>
              </Link>
              {onRemove && <CloseButton size="xs" aria-label={`Remove job ${id}`} onClick={() => onRemove(id)} />}
            </span>
          </th>
        ))}
      </tr>
    </thead>
  );
  return (
    <>
      {wrong.map((w) => (
        <ErrorState key={w.id} error={w.error} title={`Job ${w.id} could not be read`} />
      ))}
      <div className={css.side}>
        <table className={css.table}>
          {head}
          <tbody>
            {about.map((a) => (
              <tr key={a.name}>
                <th scope="row">{a.name}</th>
                {ids.map((id, i) => {
                  const j = list[i];
                  return <td key={id}>{j ? a.of(j, i) : none}</td>;
                })}
              </tr>
            ))}
          </tbody>
          <Section title={`Spec: ${plural(spec.rows.length, "field")} differ${spec.rows.length === 1 ? "s" : ""}, ${count(spec.same)} are the same`} rows={spec.rows} width={ids.length} />
          <Section title={`Results${tasks.some((t) => t && t.length === sample) ? ` of the first ${count(sample)} tasks` : ""}: ${plural(results.filter((r) => r.differs).length, "value")} differ${results.filter((r) => r.differs).length === 1 ? "s" : ""}`} rows={shown} width={ids.length} best />
        </table>
      </div>
      {results.some((r) => !r.differs) && <Switch size="xs" mt="xs" label="Also show results that are the same" checked={all} onChange={(e) => setAll(e.currentTarget.checked)} />}
      {lines && base && other && (
        <section style={{ marginTop: 18 }}>
          <div className={page.toolbar}>
            <strong>
              Spec of job {base.id} and of job {known.length > 2 ? "" : other.id}
            </strong>
            {known.length > 2 && <Select size="xs" aria-label="The other job" data={known.slice(1).map((j) => ({ value: String(j.id), label: String(j.id) }))} value={String(other.id)} onChange={(v) => setPair(v ?? undefined)} allowDeselect={false} w={100} />}
            <span className="dim">
              {plural(changes(lines).removed, "line")} removed, {plural(changes(lines).added, "line")} added
            </span>
          </div>
          {changes(lines).removed + changes(lines).added > 0 && <SpecDiff lines={lines} wrap={false} label={`Differences of the specs of jobs ${base.id} and ${other.id}`} />}
        </section>
      )}
    </>
  );
}

function Section({ title, rows, width, best = false }: { title: string; rows: readonly Row[]; width: number; best?: boolean }) {
  return (
    <tbody>
      <tr>
        <th colSpan={width + 1} className={css.section} scope="colgroup">
          {title}
        </th>
      </tr>
      {rows.map((r) => {
        const winner = best && r.differs ? bestOf(r.name, r.values) : -1;
        return (
          <tr key={r.name} data-differs={(!best && r.differs) || undefined}>
            <th scope="row" title={r.name}>
              {r.name}
            </th>
            {r.values.map((v, i) => (
              <td key={i} data-best={i === winner || undefined}>
                <span className={css.clip} title={v === undefined ? undefined : String(v)}>
                  {v === undefined ? none : typeof v === "number" ? digits(v, 4) : v}
                  {i === winner && <span className="dim"> best</span>}
                </span>
              </td>
            ))}
          </tr>
        );
      })}
    </tbody>
  );
}
