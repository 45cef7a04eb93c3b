import { Button, CloseButton, Pill, SegmentedControl, Select, Skeleton } from "@mantine/core";
import { Link, useNavigate } from "@tanstack/react-router";
import { Download, Table2 } from "lucide-react";
import { useMemo, useState } from "react";
import { DataTable, type Column, type Sort } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { bytes, cost, count, digits, duration, energy, none, plural, words } from "@/ui/format";
import { StateBadge } from "@/ui/StateBadge";
import { sortRows } from "@/ui/sort";
import { numbersOf, spansOf, useTasks } from "../feed/tasks";
import { Incomplete } from "../Incomplete";
import type { TabProps } from "../job";
import page from "../job.module.css";
import { csv, download, fileName } from "../model/csv";
import { inRanges, number } from "../model/plot";
import { at, fieldsOf, objective, toCSV, toRun, type Field, type Run } from "../model/results";
import { ParallelPlot } from "../ParallelPlot";
import { RangesMenu } from "../RangesMenu";
import { RunsCompared } from "../RunsCompared";
import { ScatterPlot } from "../ScatterPlot";
import type { Bound, Range, Ranges } from "../search";

const maxRuns = 20_000;
const auto = 5_000;
/** Runs side by side at most. */
const maxCompared = 8;

/** What the elements of a job were given, and what came out: as a table, as plots, side by side. */
export default function Results({ job, search, set }: TabProps) {
  const navigate = useNavigate();
  const groups = job.groups ?? [];
  const named = groups.find((g) => g.name === search.stage);
  const sweep = groups.find((g) => job.spec?.tasks?.[g.index]?.matrix || job.spec?.tasks?.[g.index]?.sweep) ?? groups.reduce((a, b) => (b.size > (a?.size ?? 0) ? b : a), groups[0]);
  const stage = named ?? sweep;
  const { list, feed } = useTasks(job.id, { numbers: stage && groups.length > 1 ? `${stage.first}-${stage.first + stage.size - 1}` : undefined, page: 1000, auto, max: maxRuns });
  const axes = useMemo(() => axisNames(job.spec?.tasks?.[stage?.index ?? 0]?.matrix), [job.spec, stage?.index]);
  const runs = useMemo(() => list.rows.map((t) => toRun(t, axes)), [list.rows, axes]);
  const fields = useMemo(() => fieldsOf(runs), [runs]);
  // While the user drags, the ranges are those of the pointer; at its end they are written to the URL.
  const saved = JSON.stringify(search.ranges ?? {});
  const [moving, setMoving] = useState<{ ranges: Ranges; over: string }>();
  const ranges = useMemo(() => (moving?.over === saved ? moving.ranges : (JSON.parse(saved) as Ranges)), [moving, saved]);
  const brush: Brush = {
    move: (change) => setMoving({ ranges: changed(ranges, change), over: saved }),
    end: (change) => {
      const next = changed(ranges, change);
      setMoving({ ranges: next, over: saved });
      set({ ranges: Object.keys(next).length > 0 ? next : undefined });
    },
    cancel: () => setMoving(undefined),
  };
  const kept = useMemo(() => inRanges(runs, ranges), [runs, ranges]);

  const best = useMemo(() => objective(fields), [fields]);
  const colorBy = fields.find((f) => f.key === search.color && f.numeric) ?? best;
  const selected = useMemo(() => new Set(search.runs ? numbersOf(search.runs, maxRuns).map((n) => `${job.id}.${n}`) : []), [search.runs, job.id]);
  const [wanted, setWanted] = useState(0);
  const select = (ids: ReadonlySet<string>) => {
    setWanted(ids.size);
    set({ runs: spansOf([...ids].map((id) => Number(id.slice(id.indexOf(".") + 1)))) || undefined });
  };
  const view = search.view === "parallel" || search.view === "scatter" || search.view === "runs" ? search.view : "table";
  const open = (r: Run) => void navigate({ to: "/tasks/$task", params: { task: r.id } });

  if (list.status === "failed") return <ErrorState error={list.error} retry={() => void feed.load()} />;
  if (list.status === "loading") return <Skeleton height={260} role="status" aria-label="Loading the results" />;
  const narrowed = Object.keys(ranges).length > 0;
  const hasResults = fields.some((f) => f.source !== "about");
  const numeric = fields.filter((f) => f.numeric && f.varies);
  return (
    <>
      <div className={page.toolbar}>
        <SegmentedControl
          size="xs"
          value={view}
          onChange={(v) => set({ view: v === "table" ? undefined : v })}
          data={[{ value: "table", label: "Table" }, { value: "parallel", label: "Parallel" }, { value: "scatter", label: "Scatter" }, { value: "runs", label: selected.size > 0 ? `Side by side (${selected.size})` : "Side by side" }]}
          aria-label="Show the results as"
        />
        {groups.length > 1 && <Select size="xs" aria-label="Stage" data={groups.map((g) => ({ value: g.name, label: `${g.name} (${count(g.size)})` }))} value={stage?.name ?? null} onChange={(v) => set({ stage: v ?? undefined, runs: undefined, x: undefined, y: undefined, color: undefined, axes: undefined, ranges: undefined, over: undefined })} allowDeselect={false} w={160} />}
        {view !== "table" && view !== "runs" && numeric.length > 0 && (
          <Select size="xs" aria-label="Colour by" data={numeric.map((f) => ({ value: f.key, label: `Colour: ${label(f)}` }))} value={colorBy?.key ?? null} onChange={(v) => set({ color: v ?? undefined })} allowDeselect={false} w={190} searchable={numeric.length > 12} />
        )}
        {view !== "runs" && <RangesMenu fields={fields} runs={runs} ranges={ranges} onChange={brush.end} />}
        <Button size="xs" variant="default" ml="auto" leftSection={<Download size={14} aria-hidden />} onClick={() => download(`${fileName(job.name, job.id, "results")}.csv`, runs.length ? toCSV(kept, fields) : csv([], []), "text/csv")}>
          CSV
        </Button>
      </div>
      {(narrowed || selected.size > 0) && (
        <div className={page.toolbar}>
          {Object.entries(ranges).map(([key, range]) => {
            const f = fields.find((x) => x.key === key);
            const name = f ? label(f) : key;
            return (
              <Pill key={key} size="md" withRemoveButton onRemove={() => brush.end({ [key]: undefined })} removeButtonProps={{ "aria-label": `Remove the range of ${name}`, tabIndex: 0 }}>
                {name} {rangeText(range)}
              </Pill>
            );
          })}
          {narrowed && (
            <span className="dim" style={{ fontSize: "0.8125rem" }}>
              {plural(kept.length, "run")} of {count(runs.length)}
            </span>
          )}
          {selected.size > 0 && (
            <span style={{ display: "inline-flex", alignItems: "center", gap: 4, fontSize: "0.8125rem" }}>
              {plural(selected.size, "run")} selected
              {wanted > selected.size && `, of ${count(wanted)}: the address has no room for more`}
              {view !== "runs" && (
                <Button size="compact-xs" variant="light" onClick={() => set({ view: "runs" }, false)}>
                  Compare
                </Button>
              )}
              <CloseButton size="sm" aria-label="Clear the selection" onClick={() => set({ runs: undefined })} />
            </span>
          )}
        </div>
      )}
      {runs.length === 0 || (!hasResults && view !== "table") ? (
        <EmptyState icon={Table2} title="No results yet">
          A task's results are what it writes to result.json in $MUSTER_OUT, and the metrics that it prints, such as ::muster loss=0.12.
        </EmptyState>
      ) : view === "table" ? (
        <ResultTable runs={kept} fields={fields} selected={selected} onSelect={select} onOpen={open} sort={search.sort} onSort={(sort) => set({ sort })} onEnd={() => void feed.more()} total={stage?.size ?? runs.length} />
      ) : view === "parallel" ? (
        <ParallelPlot runs={runs} kept={kept} fields={fields} colorBy={colorBy} axes={search.axes} onAxes={(axes) => set({ axes })} ranges={ranges} brush={brush} onOpen={open} />
      ) : view === "scatter" ? (
        <ScatterPlot runs={runs} kept={kept} fields={fields} x={search.x} y={search.y} colorBy={colorBy} best={best} onAxes={(x, y) => set({ x, y })} onBrush={brush.end} onOpen={open} />
      ) : (
        <RunsCompared runs={runs.filter((r) => selected.has(r.id)).slice(0, maxCompared)} more={Math.max(0, selected.size - maxCompared)} fields={fields} over={search.over} onOver={(over) => set({ over })} onRemove={(id) => select(new Set([...selected].filter((s) => s !== id)))} />
      )}
      <p className={page.note}>
        {plural(kept.length, "run")}
        {list.loadingMore && ", loading more…"}
        {list.more && !list.loadingMore && (
          <>
            {" "}
            of {count(stage?.size ?? 0)}.{" "}
            <Button size="compact-xs" variant="subtle" onClick={() => void feed.more()}>
              Load {count(1000)} more
            </Button>
          </>
        )}
      </p>
      <Incomplete error={list.error} retry={() => void feed.again()} />
    </>
  );
}

export const label = (f: Field) => (f.source === "about" ? words(f.name) : f.name);

/** What a plot does with ranges: change them while the user drags, at the end, or not after all. undefined removes a range. */
export interface Brush {
  readonly move: (change: RangeChange) => void;
  readonly end: (change: RangeChange) => void;
  readonly cancel: () => void;
}
export type RangeChange = Readonly<Record<string, Range | undefined>>;

function changed(ranges: Ranges, change: RangeChange): Ranges {
  return Object.fromEntries(Object.entries({ ...ranges, ...change }).filter((e): e is [string, Range] => e[1] !== undefined));
}

function rangeText([low, high]: Range): string {
  const text = (b: Bound) => (typeof b === "number" ? number(b) : String(b));
  if (low === null) return `up to ${text(high)}`;
  return high === null ? `from ${text(low)}` : `${text(low)} to ${text(high)}`;
}

/** The axes of a matrix in the order in which elements name them. */
function axisNames(matrix: unknown): string[] {
  return matrix !== null && typeof matrix === "object" ? Object.keys(matrix) : [];
}

/** Writes a value of a field. */
export function show(f: Field, r: Run): string {
  const v = r.values.get(f.key);
  if (v === undefined) return none;
  if (f.source === "about" && typeof v === "number") {
    if (f.name === "duration") return duration(v);
    if (f.name === "cost") return cost(v);
    if (f.name === "energy") return energy(v);
    if (f.name === "memory" || f.name === "vram") return bytes(v);
  }
  return typeof v === "number" ? digits(v, f.source === "param" ? 6 : 4) : String(v);
}

function ResultTable({ runs, fields, selected, onSelect, onOpen, sort, onSort, onEnd, total }: {
  runs: readonly Run[];
  fields: readonly Field[];
  selected: ReadonlySet<string>;
  onSelect: (s: ReadonlySet<string>) => void;
  onOpen: (r: Run) => void;
  sort: string | undefined;
  onSort: (s: string | undefined) => void;
  onEnd: () => void;
  total: number;
}) {
  const columns = useMemo(
    (): Column<Run>[] => [
      { id: "about:task", header: "Task", width: "88px", sort: (r) => r.task.index, cell: (r) => <Link to="/tasks/$task" params={{ task: r.id }} className="link" tabIndex={-1}>{r.id}</Link> },
      { id: "about:state", header: "State", width: "120px", minTable: 560, sort: (r) => r.task.state, cell: (r) => <StateBadge state={r.task.state} /> },
      ...fields
        .filter((f) => !["about:task", "about:state", "about:stage"].includes(f.key))
        .map((f): Column<Run> => ({
          id: f.key,
          header: label(f),
          width: f.numeric ? "minmax(88px, 1fr)" : "minmax(100px, 1.2fr)",
          ...(f.numeric && { align: "right" as const }),
          optional: (f.source === "about" && f.name !== "duration") || (f.source === "metric" && fields.some((x) => x.source === "result" && x.name === f.name)),
          sort: (r) => at(r, f.key),
          cell: (r) => <span title={typeof r.values.get(f.key) === "string" ? String(r.values.get(f.key)) : undefined}>{show(f, r)}</span>,
        })),
    ],
    [fields],
  );
  const order = useMemo((): Sort | undefined => (sort ? { by: sort.replace(/^-/, ""), desc: sort.startsWith("-") } : undefined), [sort]);
  const rows = useMemo(() => {
    const by = columns.find((c) => c.id === order?.by)?.sort;
    return by && order ? sortRows(runs, by, order.desc) : runs;
  }, [runs, columns, order]);
  return <DataTable id="job-results" label="Results" rows={rows} columns={columns} rowKey={(r) => r.id} rowHeight={36} selected={selected} onSelect={onSelect} onOpen={onOpen} sort={order} onSort={(s) => onSort(s && `${s.desc ? "-" : ""}${s.by}`)} onEnd={onEnd} total={total} />;
}
