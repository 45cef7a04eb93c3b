import { Badge, Button, Checkbox, Group, SegmentedControl, Select, Skeleton, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Gpu, LayoutGrid, List, Plus, Search, Server } from "lucide-react";
import { memo, useCallback, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { get } from "@/api/client";
import { useCan, useSession } from "@/api/session";
import { workerStates, type Worker, type WorkerState } from "@/api/types";
import { DataTable, type Column } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { bytes, bytesOf, cost, count, percent, words } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { StateBadge } from "@/ui/StateBadge";
import { TimeAgo } from "@/ui/time";
import { useTyped } from "@/ui/useTyped";
import { BulkActions, WorkerActions } from "./actions";
import { AddWorker } from "./AddWorker";
import { Bar, GPUGauge, GPUStrip } from "./Gauge";
import { GPUTable } from "./GPUTable";
import { connected, devices, filter, reserved, size, troubles } from "./model";
import css from "./workers.module.css";

const route = getRouteApi("/workers");

export default function WorkersPage() {
  const search = route.useSearch();
  const navigate = useNavigate({ from: "/workers" });
  const { me } = useSession();
  const steer = useCan("steer workers");
  const join = useCan("join workers");
  const query = useQuery(fleet);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  // An answer changes every row: they are rendered in between what else the page does.
  const data = useDeferredValue(query.data);
  const all = useMemo(() => data?.workers ?? [], [data]);
  const view = search.view ?? "table";
  // Rows of GPUs are searched separately: a worker may have several models.
  const shown = useMemo(() => filter(all, view === "gpus" ? { ...search, q: "" } : search, me?.version), [all, search, view, me?.version]);
  const chosen = useMemo(() => all.filter((w) => selected.has(w.id)), [all, selected]);

  const set = (change: Partial<typeof search>) =>
    void navigate({
      search: (old) => Object.fromEntries(Object.entries({ ...old, ...change }).filter(([, v]) => v !== undefined && v !== "" && v !== false)),
      replace: true,
    });
  const showAll = () => set({ q: undefined, state: undefined, attention: false });
  const [typed, type] = useTyped(search.q ?? "", (q) => set({ q }));

  return (
    <>
      <PageHeader
        title="Workers"
        badge={data && <Text c="dimmed">{count(all.length)}</Text>}
        actions={
          join && (
            <Button leftSection={<Plus size={16} aria-hidden />} onClick={() => set({ add: true })}>
              Add a worker
            </Button>
          )
        }
      />
      <AddWorker opened={search.add === true && join} onClose={() => set({ add: false })} />
      {!data && !query.isError && (
        <Stack role="status" aria-label="Loading the workers">
          <Skeleton h={36} />
          <Skeleton h="45dvh" />
        </Stack>
      )}
      {query.isError && !data && <ErrorState error={query.error} retry={() => void query.refetch()} />}
      {data && all.length === 0 && (
        <EmptyState
          icon={Server}
          title="No workers yet"
          action={join && <Button onClick={() => set({ add: true })}>Add a worker</Button>}
        >
          Tasks wait until a worker joins. Any machine with Muster can be one: it needs this server&apos;s address and a join token.
        </EmptyState>
      )}
      {all.length > 0 && (
        <>
          <div className={css.filters}>
            <TextInput
              className={css.search}
              type="search"
              aria-label="Search workers"
              data-search
              placeholder="Name, tag, label, GPU …"
              leftSection={<Search size={15} aria-hidden />}
              value={typed}
              onChange={(e) => type(e.currentTarget.value)}
            />
            <Select
              aria-label="State"
              placeholder="Any state"
              clearable
              w={150}
              value={search.state ?? null}
              data={workerStates.map((s) => ({ value: s, label: words(s) }))}
              onChange={(v) => set({ state: (v) ?? undefined })}
            />
            <Checkbox label="Needs attention" checked={search.attention === true} onChange={(e) => set({ attention: e.currentTarget.checked })} />
            <SegmentedControl
              ml="auto"
              aria-label="View"
              value={view}
              onChange={(v) => set({ view: v === "table" ? undefined : v })}
              data={[
                { value: "table", label: <ViewLabel icon={List} text="Table" /> },
                { value: "cards", label: <ViewLabel icon={LayoutGrid} text="Cards" /> },
                { value: "gpus", label: <ViewLabel icon={Gpu} text="GPUs" /> },
              ]}
            />
          </div>
          {steer && view !== "gpus" && chosen.length > 0 && (
            <Group mb="xs">
              <BulkActions workers={chosen} onClear={() => setSelected(new Set())} onDone={(failed) => setSelected(new Set(failed.map((w) => w.id)))} />
            </Group>
          )}
          {view === "gpus" ? (
            <GPUTable workers={shown} q={search.q} onShowAll={showAll} />
          ) : shown.length === 0 ? (
            <EmptyState icon={Search} title="No worker matches" action={<Button variant="default" onClick={showAll}>Show all</Button>}>
              {count(all.length)} workers are hidden by the filters.
            </EmptyState>
          ) : view === "cards" ? (
            <Cards workers={shown} version={me?.version} />
          ) : (
            <WorkerTable workers={shown} version={me?.version} {...(steer && { selected, onSelect: setSelected })} />
          )}
        </>
      )}
    </>
  );
}

// Load comes with heartbeats, which are no events. Answers differ in every worker, and comparing thousands of them with those before costs
// more than it saves. What devices do is asked only of the workers that are in view.
const fleet = { ...get("/api/v1/workers", { params: { query: { view: "basic" } } }, { live: ["workers"], every: 2_000 }), refetchInterval: 10_000, structuralSharing: false };

/** The most workers that one request may name. */
const mostIDs = 200;

/** Remembers which workers are in view, and returns them with what their devices do, by id. */
function useInView(): [ReadonlyMap<string, Worker>, (rows: readonly Worker[]) => void] {
  const [ids, setIDs] = useState("");
  // A scroll asks for its workers when it rests.
  const [settled] = useDebouncedValue(ids, 150);
  const query = useQuery({
    ...get("/api/v1/workers", { params: { query: { id: settled.split(" ") } } }, { live: ["workers"], every: 2_000 }),
    enabled: settled !== "",
    refetchInterval: 4_000,
    structuralSharing: false,
    gcTime: 0,
  });
  const data = useDeferredValue(query.data);
  const details = useMemo(() => new Map((data?.workers ?? []).map((w) => [w.id, w])), [data]);
  const onVisible = useCallback((rows: readonly Worker[]) => setIDs(rows.slice(0, mostIDs).map((w) => w.id).sort().join(" ")), []);
  return [details, onVisible];
}

const byName = { by: "name", desc: false };

function ViewLabel({ icon: Icon, text }: { icon: typeof List; text: string }) {
  return (
    <Group gap={6} wrap="nowrap">
      <Icon size={15} aria-hidden />
      {text}
    </Group>
  );
}

const WorkerTable = memo(function WorkerTable({ workers, version, selected, onSelect }: { workers: readonly Worker[]; version: string | undefined; selected?: ReadonlySet<string>; onSelect?: (s: ReadonlySet<string>) => void }) {
  const navigate = useNavigate();
  const [details, onVisible] = useInView();
  const columns = useMemo<Column<Worker>[]>(
    () => [
      { id: "name", header: "Name", width: "minmax(130px, 1.6fr)", sort: (w) => w.name, cell: (w) => <NameCell worker={w} version={version} /> },
      { id: "state", header: "State", width: "minmax(126px, 0.8fr)", sort: (w) => w.state, cell: (w) => <StateBadge state={w.state as WorkerState} /> },
      { id: "running", header: "Tasks", width: "70px", align: "right", minTable: 400, sort: (w) => w.running, cell: (w) => count(w.running) },
      { id: "cpu", header: "CPU", width: "minmax(130px, 1fr)", minTable: 620, sort: (w) => (connected(w) ? w.load?.cpu : undefined), cell: (w) => <CPU worker={w} compact /> },
      { id: "memory", header: "Memory", width: "minmax(150px, 1fr)", minTable: 860, sort: (w) => size(w.load?.memory), cell: (w) => <Memory worker={w} compact /> },
      { id: "gpus", header: "GPUs", width: "minmax(110px, 0.9fr)", minTable: 480, sort: (w) => w.resources.gpus?.length ?? 0, cell: (w) => <GPUStrip list={devices(details.get(w.id) ?? w)} /> },
      { id: "tags", header: "Tags", minTable: 1080, cell: (w) => <Tags tags={w.tags ?? []} /> },
      { id: "price", header: "Price/h", width: "80px", align: "right", minTable: 980, sort: (w) => w.price, cell: (w) => cost(w.price) },
      { id: "version", header: "Version", optional: true, sort: (w) => w.version, cell: (w) => <span className="mono">{w.version ?? "–"}</span> },
      { id: "seen", header: "Last seen", width: "90px", minTable: 1180, sort: (w) => (w.last_seen_at ? Date.parse(w.last_seen_at) : undefined), cell: (w) => <TimeAgo at={w.last_seen_at} /> },
      { id: "actions", header: "Actions", width: "64px", minTable: 520, cell: (w) => <WorkerActions worker={w} menu /> },
    ],
    [version, details],
  );
  return (
    <DataTable
      id="workers"
      label="Workers"
      rows={workers}
      columns={columns}
      rowKey={(w) => w.id}
      rowHeight={52}
      sort={byName}
      onVisible={onVisible}
      onOpen={(w) => void navigate({ to: "/workers/$worker", params: { worker: w.id } })}
      {...(selected && onSelect && { selected, onSelect })}
    />
  );
});

function NameCell({ worker, version }: { worker: Worker; version: string | undefined }) {
  const trouble = troubles(worker, version)[0];
  return (
    <span className={css.nameCell}>
      <Link to="/workers/$worker" params={{ worker: worker.id }} className="link truncate" title={worker.name}>
        {worker.name}
      </Link>
      {trouble && (
        <span className={`${css.warn} ${css.small} truncate`} title={trouble.text}>
          {trouble.kind}: {trouble.text}
        </span>
      )}
    </span>
  );
}

function CPU({ worker, compact = false }: { worker: Worker; compact?: boolean }) {
  const given = reserved(worker).cpus;
  const cpus = worker.resources.cpus;
  const load = connected(worker) ? worker.load?.cpu : undefined;
  return (
    <Bar
      label={compact ? count(cpus) : "CPU"}
      compact={compact}
      value={load}
      mark={given !== undefined && cpus > 0 ? given / cpus : undefined}
      text={percent(load)}
      hint={`${count(cpus)} cores, ${percent(load)} in use, ${given === undefined ? "–" : Number(given.toFixed(1))} reserved by tasks`}
    />
  );
}

function Memory({ worker, compact = false }: { worker: Worker; compact?: boolean }) {
  const capacity = size(worker.resources.memory);
  const used = connected(worker) ? size(worker.load?.memory) : undefined;
  const given = reserved(worker).memory;
  const share = (n: number | undefined) => (n !== undefined && capacity ? n / capacity : undefined);
  return <Bar label={compact ? bytes(capacity) : "Memory"} compact={compact} value={share(used)} mark={share(given)} text={percent(share(used))} hint={`${bytesOf(used, capacity)} in use, ${bytes(given)} reserved by tasks`} />;
}

function Tags({ tags }: { tags: readonly string[] }) {
  return (
    <span className="truncate" title={tags.join(", ")}>
      {tags.join(", ") || "–"}
    </span>
  );
}

/** Cards are virtual, too: rows of as many cards as fit. */
function Cards({ workers, version }: { workers: readonly Worker[]; version: string | undefined }) {
  const scroller = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const measure = (element: HTMLDivElement | null) => {
    scroller.current = element;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  };
  const each = Math.max(1, Math.floor((width + 12) / 332));
  const rows = Math.ceil(workers.length / each);
  const virtual = useVirtualizer({ count: rows, getScrollElement: () => scroller.current, estimateSize: () => 280, overscan: 2, gap: 12 });
  const items = virtual.getVirtualItems();
  const [details, onVisible] = useInView();
  const from = (items[0]?.index ?? 0) * each;
  const to = ((items.at(-1)?.index ?? 0) + 1) * each;
  useEffect(() => onVisible(workers.slice(from, to)), [workers, from, to, onVisible]);
  return (
    <div ref={measure} style={{ maxHeight: "max(360px, calc(100dvh - 210px))", overflow: "auto" }} role="list" aria-label="Workers" data-testid="cards">
      <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {items.map((item) => (
          <div key={item.key} ref={virtual.measureElement} data-index={item.index} className={css.grid} style={{ position: "absolute", top: 0, left: 0, right: 0, transform: `translateY(${item.start}px)`, gridTemplateColumns: `repeat(${each}, minmax(0, 1fr))` }}>
            {workers.slice(item.index * each, (item.index + 1) * each).map((w) => (
              <Card key={w.id} worker={details.get(w.id) ?? w} version={version} />
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}

function Card({ worker, version }: { worker: Worker; version: string | undefined }) {
  return (
    <article className={css.card} role="listitem" aria-label={worker.name}>
      <div className={css.cardHead}>
        <Link to="/workers/$worker" params={{ worker: worker.id }} className="link truncate" title={worker.name}>
          <b>{worker.name}</b>
        </Link>
        <Group gap={4} wrap="nowrap">
          <StateBadge state={worker.state as WorkerState} />
          <WorkerActions worker={worker} menu />
        </Group>
      </div>
      <Group gap="xs" c="dimmed" fz="xs">
        <span>{count(worker.running)} running</span>
        {worker.price !== undefined && <span>{cost(worker.price)} per hour</span>}
        <span className="mono">{worker.version}</span>
        <TimeAgo at={worker.last_seen_at} />
      </Group>
      {troubles(worker, version).map((t) => (
        <div key={t.text} className={css.warn}>
          {t.kind}: {t.text}
        </div>
      ))}
      <CPU worker={worker} />
      <Memory worker={worker} />
      {devices(worker).map((d) => (
        <GPUGauge key={d.gpu.uuid} device={d} />
      ))}
      <div className={css.tags}>
        {(worker.tags ?? []).map((t) => (
          <Badge key={t} variant="default" size="sm" tt="none" fw={400}>
            {t}
          </Badge>
        ))}
      </div>
    </article>
  );
}
