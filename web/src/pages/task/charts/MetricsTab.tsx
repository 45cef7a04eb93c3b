import { Group, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQueries, useQueryClient, type UseQueryResult } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ChartLine, Search } from "lucide-react";
import { useMemo, type ReactNode } from "react";
import type { Attempt, Task } from "@/api/types";
import { CurveControls, useCurveStyle } from "@/ui/CurveControls";
import { bytes, digits, percent, plural, short, watts } from "@/ui/format";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { useNow } from "@/ui/time";
import { TimeChart, type ChartMarker } from "@/ui/TimeChart";
import { useTyped } from "@/ui/useTyped";
import { metricsQuery, usageQuery } from "../api";
import { numberOf } from "../attempt";
import type { TaskSearch } from "../search";
import { UsageLine } from "../UsageLine";
import { InView } from "./InView";
import { curvesOf, groupOf, partOf, positive, resourcesOf, seconds, smooth, type Curve, type Resource } from "./series";

/** Attempts whose charts are drawn at most: the newest. */
const maxAttempts = 8;
const height = 170;

/** The answers for several attempts as one. */
function together<T>(results: readonly UseQueryResult<T>[]) {
  return { answers: results.flatMap((r) => r.data ?? []), error: results.find((r) => r.error && !r.data)?.error, pending: results.some((r) => r.isPending) };
}

/** Everything that was measured, on one time axis: a drag in one chart zooms all, a double click shows all again. */
export function MetricsTab({ task, attempts, live, search }: { task: Task; attempts: readonly Attempt[]; live: boolean; search: TaskSearch }) {
  const style = useCurveStyle();
  const { weight, log } = style;
  const { attempt, metric = "" } = search;
  const navigate = useNavigate({ from: "/tasks/$task" });
  const [filter, setFilter] = useTyped(metric, (text) => void navigate({ search: (s) => ({ ...s, metric: text || undefined }), replace: true }));
  const now = useNow();
  const queries = useQueryClient();
  const retry = () => Promise.all(["metrics", "usage"].map((of) => queries.refetchQueries({ queryKey: [`/api/v1/tasks/{task}/${of}`], predicate: (q) => q.state.status === "error" })));
  const numbers = useMemo(() => attempts.map(numberOf).filter((n) => attempt === undefined || n === attempt).slice(-maxAttempts), [attempts, attempt]);
  const metrics = useQueries({ queries: numbers.map((n) => metricsQuery(task.id, n, n === task.attempt)), combine: together });
  const usages = useQueries({ queries: numbers.map((n) => usageQuery(task.id, n, n === task.attempt, live)), combine: together });

  const shown = useMemo(() => metrics.answers.flatMap((m) => m.attempts), [metrics.answers]);
  const curves = useMemo(() => curvesOf(shown), [shown]);
  const gpus = task.grant?.gpus;
  const resources = useMemo(
    () =>
      resourcesOf(
        usages.answers,
        (uuid) => {
          const i = gpus?.indexOf(uuid) ?? -1;
          return i >= 0 ? `GPU ${i}` : uuid;
        },
      ),
    [usages.answers, gpus],
  );

  // One axis for all: from the first start to the last end, or to now.
  const chosen = attempts.filter((a) => numbers.includes(numberOf(a)));
  const starts = chosen.flatMap((a) => (a.started_at ? [seconds(a.started_at)] : []));
  const from = starts.length > 0 ? Math.min(...starts) : undefined;
  const ends = chosen.flatMap((a) => (a.finished_at ? [seconds(a.finished_at)] : []));
  const current = live && numbers.includes(task.attempt ?? 0);
  const to = from === undefined ? undefined : current ? Math.ceil(now / 5000) * 5 : Math.max(from + 1, ...ends);
  const marked = JSON.stringify([chosen.map((a) => [numberOf(a), a.started_at]), shown.map((a) => a.checkpoints)]);
  const markers = useMemo<readonly ChartMarker[]>(
    () => [
      ...(chosen.length > 1 ? chosen.flatMap((a) => (a.started_at ? [{ at: seconds(a.started_at), label: `attempt ${numberOf(a)}`, color: "var(--state-queued)" }] : [])) : []),
      ...shown.flatMap((a) => (a.checkpoints ?? []).map((c) => ({ at: seconds(c), label: "checkpoint", color: "var(--state-succeeded)", tick: true }))),
    ].sort((a, b) => a.at - b.at),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- marked holds all of it
    [marked],
  );

  const names = [...curves.keys()].filter((n) => n.toLowerCase().includes(filter.trim().toLowerCase()));
  const groups = groupNames(names);
  const axis = { sync: `task-${task.id}`, markers, from, to };
  const pending = metrics.pending || usages.pending || (attempts.length === 0 && (task.attempt ?? 0) > 0);
  const nothing = curves.size === 0 && resources.length === 0;
  if (nothing && !pending && (metrics.error ?? usages.error)) return <ErrorState error={metrics.error ?? usages.error} retry={() => void retry()} title="The metrics could not be loaded" />;
  if (nothing) {
    return (
      <div className="card">
        <EmptyState icon={ChartLine} title={pending ? "Loading" : (task.attempt ?? 0) === 0 ? "Not started yet" : "Nothing was measured"}>
          A task reports metrics by printing lines such as <span className="mono">::muster progress=0.4 loss=0.12</span>. What it uses of CPU, memory and GPUs is measured every few seconds.
        </EmptyState>
      </div>
    );
  }
  return (
    <Stack gap="md">
      <Group gap="md" wrap="wrap" align="center">
        {curves.size > 0 && (
          <>
            {curves.size > 6 && <TextInput data-search size="xs" w={200} value={filter} onChange={(e) => setFilter(e.currentTarget.value)} placeholder="Filter metrics" aria-label="Filter metrics" leftSection={<Search size={13} aria-hidden />} />}
            <CurveControls {...style} />
          </>
        )}
        {markers.some((m) => m.tick) && (
          <Text size="xs">
            <span style={{ color: "var(--state-succeeded)" }} aria-hidden>
              ▲
            </span>{" "}
            checkpoint saved
          </Text>
        )}
        <Text size="xs" c="dimmed" ml="auto" visibleFrom="sm">
          Drag to zoom all charts, double-click to show all
        </Text>
      </Group>
      {metrics.error && <ErrorState error={metrics.error} retry={() => void retry()} title="The history of metrics could not be loaded" />}
      {groups.map((g) => (
        <section key={g.name} aria-label={g.name || "Metrics"}>
          {groups.length > 1 && (
            <Title order={2} mb={8}>
              {g.name || "Other metrics"}
            </Title>
          )}
          <Grid>
            {g.names.map((name) => {
              const curve = curves.get(name);
              return (
                curve && (
                  <InView key={name} height={height + 74}>
                    <MetricChart name={name} curve={curve} weight={weight} log={log} axis={axis} />
                  </InView>
                )
              );
            })}
          </Grid>
        </section>
      ))}
      {curves.size > 0 && names.length === 0 && <Text c="dimmed">No metric has “{filter}” in its name; there {curves.size === 1 ? "is" : "are"} {plural(curves.size, "metric")}.</Text>}
      {resources.length > 0 && (
        <section aria-labelledby="resources">
          <Group justify="space-between" mb={8} gap="4px 16px">
            <Title order={2} id="resources">
              Resources
            </Title>
            <UsageLine usage={usages.answers.at(-1)?.usage} grant={task.grant} />
          </Group>
          <Grid>
            {resources.map((r) => (
              <InView key={r.title} height={height + 74}>
                <ResourceChart resource={r} axis={axis} granted={granted(r, task)} />
              </InView>
            ))}
          </Grid>
        </section>
      )}
    </Stack>
  );
}

function Grid({ children }: { children: ReactNode }) {
  return <div style={{ display: "grid", gridTemplateColumns: "repeat(auto-fill, minmax(min(100%, 360px), 1fr))", gap: 12 }}>{children}</div>;
}

interface Axis {
  readonly sync: string;
  readonly markers: readonly ChartMarker[];
  readonly from: number | undefined;
  readonly to: number | undefined;
}

function MetricChart({ name, curve, weight, log, axis }: { name: string; curve: Curve; weight: number; log: boolean; axis: Axis }) {
  const series = useMemo(() => {
    const drawn = log ? { ...curve, values: positive(curve.values) } : curve;
    const values = smooth(drawn, weight);
    const raw = weight === 0 ? [] : [{ label: "as reported", values: drawn.values, color: "var(--line)" }];
    if (curve.parts.length < 2) return [...raw, { label: weight === 0 ? name : "smoothed", values, color: "var(--chart-1)" }];
    // The newest attempt has the first colour.
    const newest = curve.parts.length - 1;
    return [...raw, ...curve.parts.map((p, i) => ({ label: `attempt ${p.attempt}`, values: partOf(curve, values, i), color: `var(--chart-${((newest - i) % 8) + 1})` }))];
  }, [name, curve, weight, log]);
  return <TimeChart title={name} times={curve.times} series={series} height={height} log={log} min={log ? undefined : floorOf(curve.values)} format={(v) => digits(v, 4)} {...axis} />;
}

// Where values are far from zero their differences fill the chart, in coarse steps, so that it is not drawn again for each value.
function floorOf(values: readonly (number | null)[]): number | undefined {
  let lo = Infinity;
  let hi = -Infinity;
  for (const v of values) {
    if (v === null) continue;
    lo = Math.min(lo, v);
    hi = Math.max(hi, v);
  }
  if (!Number.isFinite(lo) || lo <= 0 || lo < hi / 2 || lo === hi) return undefined;
  const step = 10 ** Math.floor(Math.log10(hi - lo));
  return Math.floor((lo - step / 2) / step) * step;
}

const formats: Record<Resource["unit"], (v: number) => string> = {
  cores: (v) => digits(v, 3),
  bytes,
  rate: (v) => `${bytes(v)}/s`,
  share: percent,
  celsius: (v) => `${Math.round(v)} °C`,
  watts,
  count: short,
};

function ResourceChart({ resource: r, axis, granted }: { resource: Resource; axis: Axis; granted: number | undefined }) {
  const series = useMemo(() => {
    const lines = r.series.map((s, i) => ({ ...s, fill: r.series.length === 1, color: `var(--chart-${(i % 8) + 1})` }));
    return granted === undefined ? lines : [...lines, { label: "granted", values: r.times.map(() => granted), dash: true, color: "var(--chart-8)" }];
  }, [r, granted]);
  return <TimeChart title={r.title} times={r.times} series={series} height={height} format={formats[r.unit]} max={r.unit === "share" ? 1 : undefined} {...axis} />;
}

function granted(r: Resource, task: Task): number | undefined {
  const g = task.grant;
  if (r.title === "CPU") return g?.cpus;
  if (r.title === "Memory") return g?.memory;
  if (r.title === "GPU memory of the task") return g?.gpu_memory;
  if (r.title === "Files of the task") return g?.disk;
  return undefined;
}


function groupNames(names: readonly string[]): readonly { name: string; names: readonly string[] }[] {
  const groups = new Map<string, string[]>();
  for (const n of names) {
    const key = names.length > 4 ? groupOf(n) : "";
    const group = groups.get(key);
    if (group) group.push(n);
    else groups.set(key, [n]);
  }
  // A group of one is no group.
  const single = [...groups].filter(([k, v]) => k !== "" && v.length === 1);
  for (const [k, v] of single) {
    groups.delete(k);
    groups.set("", [...(groups.get("") ?? []), ...v]);
  }
  return [...groups].map(([name, of]) => ({ name, names: of })).sort((a, b) => Number(a.name === "") - Number(b.name === ""));
}
