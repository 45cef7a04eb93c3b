import { ActionIcon, Group, Select, Skeleton, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Grid3x3, Maximize2, ZoomIn, ZoomOut } from "lucide-react";
import { useEffect, useImperativeHandle, useMemo, useRef, useState, type Ref } from "react";
import { get } from "@/api/client";
import { useLive } from "@/api/live";
import { taskStates } from "@/api/types";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { count, words } from "@/ui/format";
import { ArrayCanvas, type ArrayHandle } from "../ArrayCanvas";
import type { TabProps } from "../job";
import page from "../job.module.css";
import css from "../grid.module.css";
import { paintTile } from "../model/tiles";
import { apply, Backlog, decode, drift, nextWith, Recent, tally, type StateEvent } from "../model/states";

/** The states of one stage as they are now: events change them in place, and version says that they did. */
interface Elements {
  readonly states: Uint8Array;
  readonly counts: number[];
  /** Where the server's events were when it made the answer, and when that came. */
  readonly place: string;
  readonly came: number;
}

/** One cell for each element of a stage, for a million as for ten. */
export default function ElementsTab({ job, search, set }: TabProps) {
  const navigate = useNavigate();
  const groups = job.groups ?? [];
  const stage = groups.find((g) => g.name === search.stage) ?? groups.reduce((a, b) => (b.size > a.size ? b : a), groups[0] ?? { name: "", first: 0, size: 0, index: 0, counts: {}, job: job.id });
  const range = { from: stage.first, to: stage.first + stage.size - 1 };
  const asked = get("/api/v1/jobs/{job}/states", { params: { path: { job: String(job.id) }, query: range } });
  const queries = useQueryClient();
  const query = useQuery({
    ...asked,
    staleTime: Infinity,
    gcTime: 0,
    placeholderData: undefined,
  });
  const { data, dataUpdatedAt, refetch } = query;
  const elements = useMemo((): Elements | undefined => {
    const s = data?.stages.find((x) => x.index === stage.index);
    if (!data || !s || s.length === 0) return undefined;
    const states = decode(s, data.states);
    return { states, counts: tally(states), place: data.seq, came: dataUpdatedAt };
  }, [data, dataUpdatedAt, stage.index]);
  const canvas = useRef<ArrayHandle>(null);
  const about = useRef<(pointed: number | undefined) => void>(null);
  const [, render] = useState(0);
  const [cursor, setCursor] = useState<number | undefined>(search.at === undefined ? undefined : search.at - stage.first);
  const pending = useRef(false);
  const missed = useRef(false);
  const recent = useRef<Recent>(null);
  const [backlog] = useState(() => new Backlog());

  // Events are applied to the array that is shown; the legend follows four times a second.
  const take = (into: Elements, events: readonly StateEvent[]) => {
    const changed = apply(into, stage.first, job.id, events);
    if (changed.length === 0) return;
    recent.current ??= new Recent();
    recent.current.add(changed.length, performance.now());
    canvas.current?.touch(changed);
    if (pending.current) return;
    pending.current = true;
    setTimeout(() => {
      pending.current = false;
      render((n) => n + 1);
    }, 250);
  };
  useLive((batch) => {
    if (batch.resync) missed.current = true;
    // States that are on their way, or not shown yet, may be older than these events: they are applied to them, too.
    const state = queries.getQueryState(asked.queryKey);
    if ((state?.fetchStatus === "fetching" || state?.dataUpdatedAt !== elements?.came) && !backlog.note(job.id, batch.events)) missed.current = true;
    if (elements) take(elements, batch.events);
  });
  useEffect(() => {
    if (!elements) return;
    take(elements, backlog.all());
    if (queries.getQueryState(asked.queryKey)?.fetchStatus !== "fetching") backlog.clear();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each answer
  }, [elements]);
  // Many elements may change at once without an event for each, as when a stage becomes ready. Then the server counts others than are shown here,
  // and more of them than are under way, and all states are read again: at most every 3 s and ten times as long as it takes.
  const server = useRef(stage.counts);
  const next = useRef(0);
  useEffect(() => {
    server.current = stage.counts;
  }, [stage.counts]);
  useEffect(() => {
    if (!elements) return;
    let strange = 0;
    next.current = Math.max(next.current, performance.now() + 3_000);
    const timer = setInterval(() => {
      const now = performance.now();
      if (document.hidden) return;
      strange = drift(elements.counts, server.current) > (recent.current?.count(now) ?? 0) ? strange + 1 : 0;
      if (now < next.current || (strange < 2 && !missed.current)) return;
      next.current = now + 60_000; // until it is known how long it took
      strange = 0;
      missed.current = false;
      void refetch({ cancelRefetch: false }).then(() => {
        const end = performance.now();
        next.current = end + Math.max(3_000, 10 * (end - now));
      });
    }, 1_000);
    return () => clearInterval(timer);
  }, [elements, refetch]);

  const shown = useMemo(() => (search.state?.length ? new Set(search.state.map((s) => taskStates.indexOf(s))) : undefined), [search.state]);
  const open = (i: number) => void navigate({ to: "/tasks/$task", params: { task: `${job.id}.${stage.first + i}` } });
  const place = (i: number | undefined) => {
    setCursor(i);
    if (i !== undefined) set({ at: stage.first + i });
  };
  const toggle = (code: number) => {
    const name = taskStates[code];
    if (!name) return;
    const now = search.state ?? [];
    set({ state: now.includes(name) ? now.filter((s) => s !== name) : taskStates.filter((s) => s === name || now.includes(s)) });
  };
  const jump = (step: 1 | -1) => {
    if (!elements) return;
    const bad = shown ?? new Set([taskStates.indexOf("failed"), taskStates.indexOf("timed_out")]);
    const to = nextWith(elements.states, bad, cursor ?? -1, step);
    if (to === undefined) return;
    place(to);
    canvas.current?.reveal(to);
  };
  return (
    <>
      <div className={page.toolbar}>
        {groups.length > 1 && (
          <Select
            size="xs"
            aria-label="Stage"
            data={groups.map((g) => ({ value: g.name, label: `${g.name} (${count(g.size)})` }))}
            value={stage.name}
            onChange={(v) => {
              setCursor(undefined);
              set({ stage: v ?? undefined, at: undefined });
            }}
            allowDeselect={false}
            searchable={groups.length > 10}
            w={200}
          />
        )}
        <About ref={about} job={job.id} first={stage.first} size={stage.size} states={elements?.states} cursor={cursor} />
        <Group gap={2} ml="auto">
          <Tooltip label="Zoom out (−)">
            <ActionIcon aria-label="Zoom out" onClick={() => canvas.current?.zoom(1 / 1.6)}>
              <ZoomOut size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="Zoom in (+)">
            <ActionIcon aria-label="Zoom in" onClick={() => canvas.current?.zoom(1.6)}>
              <ZoomIn size={16} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <Tooltip label="Show all (0)">
            <ActionIcon aria-label="Show all elements" onClick={() => canvas.current?.all()}>
              <Maximize2 size={15} aria-hidden />
            </ActionIcon>
          </Tooltip>
        </Group>
      </div>
      {query.error && !elements ? (
        <ErrorState error={query.error} retry={() => void refetch()} />
      ) : query.isPending ? (
        <Skeleton height={220} role="status" aria-label="Loading the states of the elements" />
      ) : !elements ? (
        <EmptyState icon={Grid3x3} title="This stage has no elements" />
      ) : (
        <>
          <Legend counts={elements.counts} shown={shown} onToggle={toggle} />
          <ArrayCanvas
            ref={canvas}
            key={`${job.id}.${stage.index}`}
            states={elements.states}
            shown={shown}
            cursor={cursor}
            onCursor={place}
            onHover={(i) => about.current?.(i)}
            onOpen={open}
            onJump={jump}
            label={`${count(stage.size)} elements of stage ${stage.name}: ${taskStates.map((s, i) => [s, elements.counts[i] ?? 0] as const).filter(([, n]) => n > 0).map(([s, n]) => `${count(n)} ${words(s)}`).join(", ")}`}
          />
          <p className={page.note}>Drag to move, Ctrl and the wheel or two fingers to zoom, a click opens the task. Keys: arrows move, Enter opens, + − 0 zoom, n and N jump to the next {shown ? "shown" : "failed"} element.</p>
        </>
      )}
    </>
  );
}

/** The element under the pointer, or else at the cursor. It renders alone: a pointer moves more often than a page can be rendered. */
function About({ ref, job, first, size, states, cursor }: { ref: Ref<(pointed: number | undefined) => void>; job: number; first: number; size: number; states: Uint8Array | undefined; cursor: number | undefined }) {
  const [pointed, setPointed] = useState<number>();
  useImperativeHandle(ref, () => setPointed, []);
  const at = pointed ?? cursor;
  const state = at === undefined ? undefined : states?.[at];
  return (
    <span className={css.about} aria-live="polite">
      {at === undefined || state === undefined ? `${count(size)} elements, a cell for each` : `Task ${job}.${first + at} · ${words(taskStates[state] ?? "waiting")}`}
    </span>
  );
}

/** The states with their marks and numbers; each filters the grid. */
function Legend({ counts, shown, onToggle }: { counts: readonly number[]; shown: ReadonlySet<number> | undefined; onToggle: (code: number) => void }) {
  return (
    <div className={css.legend} role="group" aria-label="States; press to show only these">
      {taskStates.map((s, code) => {
        const n = counts[code] ?? 0;
        if (n === 0 && !shown?.has(code)) return null;
        return (
          <button key={s} type="button" className={css.key} aria-pressed={shown?.has(code) ?? false} data-off={(shown && !shown.has(code)) || undefined} onClick={() => onToggle(code)}>
            <Tile code={code} />
            {words(s)} <strong>{count(n)}</strong>
          </button>
        );
      })}
    </div>
  );
}

function Tile({ code }: { code: number }) {
  const ref = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = ref.current;
    const ctx = element?.getContext("2d");
    if (!element || !ctx) return;
    const ratio = devicePixelRatio || 1;
    element.width = element.height = Math.round(14 * ratio);
    const color = getComputedStyle(element).getPropertyValue(`--state-${taskStates[code] ?? "waiting"}`).trim();
    paintTile(ctx, code, element.width, color || "#888888");
  });
  return <canvas ref={ref} width={14} height={14} className={css.tile} aria-hidden />;
}
