import { ActionIcon, Group, SegmentedControl, Select, Skeleton, Tooltip } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ChartGantt, Maximize2, ZoomIn, ZoomOut } from "lucide-react";
import { useMemo, useRef, useState } from "react";
import { client, data } from "@/api/client";
import type { components } from "@/api/schema";
import { taskStates, total } from "@/api/types";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { count, duration, percent, plural, words } from "@/ui/format";
import { StateIcon } from "@/ui/StateBadge";
import { useNow } from "@/ui/time";
import { useTasks } from "../feed/tasks";
import { GanttCanvas, type GanttHandle } from "../GanttCanvas";
import { Incomplete } from "../Incomplete";
import type { TabProps } from "../job";
import page from "../job.module.css";
import css from "../gantt.module.css";
import { barsOf, busy, extent, hasEarlier, lanes, progressOf, type Bar, type Span } from "../model/gantt";

type Attempts = components["schemas"]["Attempts"];

/** Tasks that are drawn at most, and tasks whose earlier attempts are read. */
const maxTasks = 5_000;
const maxRetried = 100;

/** Every attempt as a bar over time: what ran where, what waited, what was tried again. */
export default function Timeline({ job, search, set }: TabProps) {
  const navigate = useNavigate();
  const now = useNow();
  const groups = job.groups ?? [];
  const stage = groups.find((g) => g.name === search.stage);
  const { list, feed } = useTasks(job.id, { numbers: stage && groups.length > 1 ? `${stage.first}-${stage.first + stage.size - 1}` : undefined, page: 1000, auto: maxTasks, max: maxTasks });
  const all = stage?.size ?? total(job.counts);
  const retried = useMemo(() => list.rows.filter(hasEarlier), [list.rows]);
  const attempts = useQueries({
    queries: retried.slice(0, maxRetried).map((t) => ({
      queryKey: ["timeline-attempts", t.id, progressOf(t)],
      queryFn: ({ signal }: { signal: AbortSignal }) => data(client.GET("/api/v1/tasks/{task}/attempts", { params: { path: { task: t.id } }, signal })),
      staleTime: Infinity,
      // What was read before is drawn until the answer comes, if it is of the same task.
      placeholderData: (old: Attempts | undefined) => (old?.attempts.every((a) => a.id.startsWith(`${t.id}#`)) ? old : undefined),
    })),
    combine: (results) => results.map((r) => r.data?.attempts),
  });
  const chart = useRef<GanttHandle>(null);
  const [hover, setHover] = useState<Bar>();
  const by = search.by ?? "worker";

  const live = !job.finished_at;
  const tick = live ? now : 0;
  const bars = useMemo(() => {
    const of = new Map(retried.slice(0, maxRetried).map((t, i) => [t.id, attempts[i]]));
    return list.rows.flatMap((t) => barsOf(t, of.get(t.id)));
  }, [list.rows, retried, attempts]);
  const names = useMemo(() => new Map([...list.rows, ...attempts.flatMap((a) => a ?? [])].flatMap((x) => (x.worker && x.worker_name ? [[x.worker, x.worker_name] as const] : []))), [list.rows, attempts]);
  const clock = tick || Math.max(0, ...bars.map((b) => b.end ?? b.start));
  const rows = useMemo(() => lanes(bars, by, clock, (w) => names.get(w) ?? w ?? "no worker"), [bars, by, clock, names]);
  const span = useMemo(() => extent(bars, clock), [bars, clock]);
  const used = by === "worker" ? busy(rows, span, clock) : undefined;
  const seen = useMemo(() => new Set(bars.map((b) => b.state)), [bars]);

  if (list.status === "failed") return <ErrorState error={list.error} retry={() => void feed.load()} />;
  if (list.status === "loading") return <Skeleton height={260} role="status" aria-label="Loading the attempts" />;
  return (
    <>
      <div className={page.toolbar}>
        <SegmentedControl size="xs" value={by} onChange={(v) => set({ by: v === "task" ? "task" : undefined })} data={[{ value: "worker", label: "By worker" }, { value: "task", label: "By task" }]} aria-label="Group bars" />
        {groups.length > 1 && (
          <Select size="xs" aria-label="Stage" data={[{ value: "", label: "All stages" }, ...groups.map((g) => ({ value: g.name, label: g.name }))]} value={stage?.name ?? ""} onChange={(v) => set({ stage: v ?? undefined })} allowDeselect={false} w={160} />
        )}
        <Group gap={2} ml="auto">
          <Tooltip label="Zoom out (−)">
            <ActionIcon aria-label="Zoom out" onClick={() => chart.current?.zoom(1 / 1.6)}>
              <ZoomOut size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="Zoom in (+)">
            <ActionIcon aria-label="Zoom in" onClick={() => chart.current?.zoom(1.6)}>
              <ZoomIn size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="Show all (0)">
            <ActionIcon aria-label="Show the whole time" onClick={() => chart.current?.all()}>
              <Maximize2 size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
        </Group>
      </div>
      {bars.length === 0 ? (
        <EmptyState icon={ChartGantt} title="Nothing has run yet">
          Each attempt appears here as soon as a worker gets it.
        </EmptyState>
      ) : (
        <>
          <div className={css.status} aria-live="polite">
            {hover ? (
              <>
                <StateIcon state={hover.state} /> Task {hover.task}
                {hover.retry && `, attempt ${hover.attempt}`} · {hover.name} · {words(hover.state)} · ran {duration(((hover.end ?? clock) - hover.start) / 1000)}
                {hover.queued !== undefined && hover.start - hover.queued > 500 && <> after {duration((hover.start - hover.queued) / 1000)} of waiting</>}
                {hover.message && <> · {hover.message}</>}
              </>
            ) : (
              <>
                {plural(bars.length, "attempt")} over {duration((span.to - span.from) / 1000)}
                {used !== undefined && <> · lanes busy {percent(used)} of the time</>}
              </>
            )}
          </div>
          <GanttCanvas ref={chart} lanes={rows} all={span} now={clock} initial={seenAt(search.span)} onView={(v) => set({ span: v && `${Math.floor(v.from)}-${Math.ceil(v.to)}` })} onHover={setHover} onOpen={(b) => void navigate({ to: "/tasks/$task", params: { task: b.task } })} label={`Timeline of ${plural(bars.length, "attempt")} in ${plural(rows.length, "lane")}`} />
          <div className={css.legend}>
            {[...taskStates, ...(["lost", "rejected", "unknown"] as const)].filter((s) => seen.has(s)).map((s) => (
              <span key={s} className={css.key}>
                <StateIcon state={s} /> {words(s)}
              </span>
            ))}
            <span className={css.key}>
              <span className={css.wait} aria-hidden /> waited in the queue
            </span>
            <span className={css.key}>
              <span className={css.again} aria-hidden /> another attempt
            </span>
          </div>
          <p className={page.note}>
            {list.loadingMore && "Loading more… "}
            {list.rows.length < all && !list.loadingMore && `The first ${count(list.rows.length)} of ${count(all)} tasks are drawn${groups.length > 1 ? ": choose a stage to see others" : ""}. `}
            {retried.length > maxRetried && `Earlier attempts of the first ${maxRetried} of ${count(retried.length)} retried tasks are drawn. `}
            Drag to move, Ctrl and the wheel to zoom, a click opens the task.
          </p>
          <Incomplete error={list.error} retry={() => void feed.again()} />
        </>
      )}
    </>
  );
}

/** The times of FROM-TO. */
function seenAt(span: string | undefined): Span | undefined {
  const [from = 0, to = 0] = (span ?? "").split("-").map(Number);
  return to > from ? { from, to } : undefined;
}
