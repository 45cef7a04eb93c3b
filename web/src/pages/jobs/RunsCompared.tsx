import { CloseButton, Select, Switch } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { SquareCheck } from "lucide-react";
import { useMemo, useState } from "react";
import { json } from "@/api/client";
import { CurveControls, useCurveStyle } from "@/ui/CurveControls";
import { EmptyState } from "@/ui/feedback";
import { duration, plural } from "@/ui/format";
import { StateBadge } from "@/ui/StateBadge";
import page from "./job.module.css";
import { axisOf, curvesOf, drawn, overs, type Curve, type WireMetrics } from "./model/curves";
import { number } from "./model/plot";
import { bestOf, differs, type Field, type Run } from "./model/results";
import css from "./plot.module.css";
import spec from "./spec.module.css";
import { label, show } from "./tabs/Results";

const dashes = ["", "6 3", "2 3", "8 3 2 3", "1 4", "10 4", "4 2 1 2", "12 3 3 3"];
export const colorOf = (i: number) => `var(--chart-${(i % 8) + 1})`;

/** With at least this number of rows, those that are the same in all runs are hidden at first. */
const manyRows = 12;

/** Selected runs side by side: what differs is marked, the best of each metric is named, and metrics are drawn together, over time or over a metric such as the step. */
export function RunsCompared({ runs, more, fields, over, onOver, onRemove }: {
  runs: readonly Run[];
  more: number;
  fields: readonly Field[];
  over: string | undefined;
  onOver: (metric: string | undefined) => void;
  onRemove: (id: string) => void;
}) {
  const histories = useQueries({
    queries: runs.map((r) => ({
      queryKey: ["/api/v1/tasks/{task}/metrics", { task: r.id }],
      queryFn: ({ signal }: { signal: AbortSignal }) => json<WireMetrics>(`/api/v1/tasks/${r.id}/metrics?points=400`, { signal, headers: { Accept: "application/json" } }),
      meta: { live: [`task:${r.id}`], every: 2_000 },
      staleTime: r.task.finished_at ? 60_000 : 2_000,
    })),
    combine: (results) => ({ data: results.map((r) => r.data), failed: results.some((r) => r.isError) }),
  });
  const style = useCurveStyle();
  const [only, setOnly] = useState<boolean>();
  const ids = runs.map((r) => r.id).join(",");
  const axes = useMemo(() => overs(histories.data), [histories.data]);
  const axis = axes.find((m) => m === over);
  const charts = useMemo(() => curvesOf(ids === "" ? [] : ids.split(","), histories.data, axis), [ids, histories.data, axis]);
  if (runs.length === 0) {
    return (
      <EmptyState icon={SquareCheck} title="No runs are selected">
        Select two or more rows of the table, with a click on their boxes or with Space, to see them side by side.
      </EmptyState>
    );
  }
  const known = fields.filter((f) => f.key !== "about:task" && f.key !== "about:state" && runs.some((r) => r.values.has(f.key)));
  const different = new Set(known.filter((f) => differs(f, runs)));
  const same = runs.length > 1 ? known.length - different.size : 0;
  const short = same > 0 && (only ?? known.length >= manyRows);
  const shown = short ? known.filter((f) => different.has(f)) : known;
  const sections = [
    { title: "Parameters", of: shown.filter((f) => f.source === "param") },
    { title: "Results", of: shown.filter((f) => f.source === "result") },
    { title: "Metrics, last values", of: shown.filter((f) => f.source === "metric") },
    { title: "Execution", of: shown.filter((f) => f.source === "about") },
  ].filter((s) => s.of.length > 0);
  return (
    <>
      {same > 0 && <Switch size="xs" mb="xs" label="Only differences" checked={short} onChange={(e) => setOnly(e.currentTarget.checked)} />}
      <div className={spec.side}>
        <table className={spec.table}>
          <thead>
            <tr>
              <td />
              {runs.map((r, i) => (
                <th key={r.id} scope="col">
                  <span style={{ display: "flex", alignItems: "center", gap: 6, whiteSpace: "nowrap" }}>
                    <Swatch i={i} />
                    <Link to="/tasks/$task" params={{ task: r.id }} className="link">
                      {r.id}
                    </Link>
                    <StateBadge state={r.task.state} compact />
                    <CloseButton size="xs" aria-label={`Remove ${r.id}`} onClick={() => onRemove(r.id)} />
                  </span>
                </th>
              ))}
            </tr>
          </thead>
          {sections.map((s) => (
            <tbody key={s.title}>
              <tr>
                <th colSpan={runs.length + 1} className={spec.section} scope="colgroup">
                  {s.title}
                </th>
              </tr>
              {s.of.map((f) => {
                const values = runs.map((r) => r.values.get(f.key));
                const best = s.title === "Parameters" || s.title === "Execution" || !different.has(f) ? -1 : bestOf(f.name, values);
                return (
                  <tr key={f.key} data-differs={(different.has(f) && s.title === "Parameters") || undefined}>
                    <th scope="row" title={label(f)}>
                      {label(f)}
                    </th>
                    {runs.map((r, i) => (
                      <td key={r.id} data-best={i === best || undefined}>
                        <span className={spec.clip} title={String(r.values.get(f.key) ?? "")}>
                          {show(f, r)}
                          {i === best && <span className="dim"> best</span>}
                        </span>
                      </td>
                    ))}
                  </tr>
                );
              })}
            </tbody>
          ))}
        </table>
      </div>
      {more > 0 && <p className={page.note}>{plural(more, "more run")} selected: the first {runs.length} are shown.</p>}
      {histories.failed && <p className={page.note}>The metrics over time of some runs could not be loaded.</p>}
      {(charts.length > 0 || axis !== undefined) && (
        <div className={page.toolbar} style={{ marginTop: 14 }}>
          {axes.length > 0 && (
            <Select size="xs" aria-label="Draw the curves over" data={[{ value: "", label: "Over time" }, ...axes.map((m) => ({ value: m, label: `Over ${m}` }))]} value={axis ?? ""} onChange={(v) => onOver(v || undefined)} allowDeselect={false} w={170} />
          )}
          <CurveControls {...style} />
        </div>
      )}
      <div className={css.curves}>
        {charts.map((c) => (
          <CurveChart key={c.name} name={c.name} reported={c.curves} over={axis} weight={style.weight} log={style.log} order={runs.map((r) => r.id)} />
        ))}
      </div>
    </>
  );
}

function Swatch({ i }: { i: number }) {
  return (
    <svg width={18} height={8} aria-hidden>
      <line x1={0} x2={18} y1={4} y2={4} stroke={colorOf(i)} strokeWidth={3} strokeDasharray={dashes[i % dashes.length]} />
    </svg>
  );
}

/** One metric of several runs over the time since each began or over another metric; faint as reported where it is smoothed. */
function CurveChart({ name, reported, over, weight, log, order }: { name: string; reported: readonly Curve[]; over: string | undefined; weight: number; log: boolean; order: readonly string[] }) {
  const [w, h, l, b] = [380, 210, 48, 24];
  const raw = reported.map((c) => drawn(c, 0, log));
  const curves = weight > 0 ? reported.map((c) => drawn(c, weight, log)) : raw;
  const points = raw.flatMap((c) => c.points);
  const across = axisOf(over === undefined ? [0, 1e-9, ...points.map((p) => p[0])] : points.map((p) => p[0]), false);
  const up = axisOf(points.map((p) => p[1]), log);
  const x = (v: number) => l + across.at(v) * (w - l - 10);
  const y = (v: number) => 10 + (1 - up.at(v)) * (h - b - 16);
  const line = (c: Curve) => c.points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ");
  return (
    <figure className="card" style={{ margin: 0 }}>
      <figcaption style={{ fontWeight: 600, fontSize: "0.875rem", marginBottom: 6 }}>{name}</figcaption>
      {points.length === 0 ? (
        <p className={page.note}>No value is above 0, so none has a place on a logarithmic scale.</p>
      ) : (
        <svg viewBox={`0 0 ${w} ${h}`} className={css.svg} role="img" aria-label={`${name} over ${over ?? "time"}: ${reported.map((c) => `${c.run} ends at ${number(c.points.at(-1)?.[1] ?? NaN)}`).join(", ")}`}>
          {up.ticks.map((v) => (
            <g key={v}>
              <line x1={l} x2={w - 10} y1={y(v)} y2={y(v)} stroke="var(--line)" />
              <text x={l - 6} y={y(v) + 4} textAnchor="end">
                {number(v)}
              </text>
            </g>
          ))}
          {across.ticks.map((v, i) => (
            <text key={v} x={x(v)} y={h - 6} textAnchor={i === 0 ? "start" : i === 1 ? "middle" : "end"}>
              {over === undefined ? duration(v) : number(v)}
            </text>
          ))}
          {weight > 0 && raw.map((c) => <polyline key={c.run} fill="none" stroke={colorOf(order.indexOf(c.run))} strokeOpacity={0.25} points={line(c)} />)}
          {curves.map((c) => {
            const i = order.indexOf(c.run);
            return <polyline key={c.run} fill="none" stroke={colorOf(i)} strokeWidth={1.8} strokeDasharray={dashes[i % dashes.length]} points={line(c)} />;
          })}
        </svg>
      )}
    </figure>
  );
}
