import { ActionIcon, Button, Group, Skeleton, Text, Tooltip } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link, getRouteApi, useNavigate } from "@tanstack/react-router";
import { ArrowUp, FilterX, ListChecks, Plus, TriangleAlert } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useCan } from "@/api/session";
import type { Job } from "@/api/types";
import { CopyLine } from "@/ui/CopyLine";
import { DataTable, type Sort } from "@/ui/DataTable";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { plural } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { sortRows } from "@/ui/sort";
import { BulkBar } from "./Bulk";
import { jobColumns } from "./columns";
import { maxRows, useJobs } from "./feed/jobs";
import { Filters } from "./Filters";
import { Incomplete } from "./Incomplete";
import css from "./jobs.module.css";
import type { JobsSearch } from "./search";
import { Views } from "./Views";

const route = getRouteApi("/jobs");
const noSelection: ReadonlySet<string> = new Set();

export default function JobsPage() {
  const search = route.useSearch();
  const navigate = useNavigate();
  const phone = useMediaQuery("(max-width: 48em)") ?? false;
  const maySubmit = useCan("submit jobs");
  const mayChange = useCan("cancel, retry or edit jobs");
  const { list, feed } = useJobs(search);
  const [selected, setSelected] = useState(noSelection);

  const setSearch = (next: JobsSearch) => {
    setSelected(noSelection);
    void navigate({ to: "/jobs", search: next, replace: true });
  };
  const columns = useMemo(() => jobColumns(phone, list.left), [phone, list.left]);
  const sort = useMemo((): Sort | undefined => {
    if (search.sort) return { by: search.sort.replace(/^-/, ""), desc: search.sort.startsWith("-") };
    return { by: "id", desc: search.order !== "oldest" };
  }, [search.sort, search.order]);
  const onSort = (next: Sort | undefined) => {
    const rest = without(search, "sort", "order");
    if (next?.by === "id" || next?.by === "created") {
      // The server sorts by number, which is the order of creation: a first click turns it round.
      const oldest = sort?.by === next.by || sort?.by === "id" ? search.order !== "oldest" : !next.desc;
      setSearch({ ...rest, ...(oldest && { order: "oldest" }) });
    } else setSearch({ ...rest, ...(search.order && { order: search.order }), ...(next && { sort: `${next.desc ? "-" : ""}${next.by}` }) });
  };
  const rows = useMemo(() => {
    const by = search.sort && columns.find((c) => c.id === sort?.by)?.sort;
    return by && sort ? sortRows(list.rows, by, sort.desc) : list.rows;
  }, [list.rows, columns, sort, search.sort]);
  const chosen = useMemo(() => list.rows.filter((j) => selected.has(String(j.id))), [list.rows, selected]);
  const open = (j: Job) => void navigate({ to: "/jobs/$job", params: { job: String(j.id) } });
  const holding = selected.size > 0;
  // Rows stay where they are while the user is below the top, or has selected some.
  const seen = useRef<{ ids: readonly number[]; atTop: boolean }>({ ids: [], atTop: true });
  const onVisible = useCallback(
    (shown: readonly Job[], atTop: boolean) => {
      seen.current = { ids: shown.map((j) => j.id), atTop };
      feed.view(seen.current.ids, holding || !atTop);
    },
    [feed, holding],
  );
  useEffect(() => feed.view(seen.current.ids, holding || !seen.current.atTop), [feed, holding]);
  const reveal = () => {
    document.querySelector("[data-testid=table-jobs]")?.scrollTo({ top: 0 });
    feed.reveal();
  };

  const filtered = Object.keys(without(search, "sort", "order")).length > 0;
  return (
    <>
      <PageHeader
        title="Jobs"
        actions={
          maySubmit && (
            <Button component={Link} to="/submit" leftSection={<Plus size={16} aria-hidden />}>
              Submit a job
            </Button>
          )
        }
      />
      <Views search={search} onChange={setSearch} />
      <Filters search={search} onChange={setSearch} rows={list.rows} />
      {list.status === "failed" ? (
        <ErrorState error={list.error} retry={() => void feed.load()} />
      ) : list.status === "loading" ? (
        <div className={css.skeleton} role="status" aria-label="Loading the jobs">
          {Array.from({ length: 8 }, (_, i) => (
            <Skeleton key={i} height={22} />
          ))}
        </div>
      ) : rows.length === 0 && list.fresh === 0 ? (
        filtered ? (
          <EmptyState
            icon={FilterX}
            title="No job matches"
            action={
              <Button variant="default" onClick={() => setSearch({})}>
                Clear the filters
              </Button>
            }
          >
            No job has all of the chosen properties.
          </EmptyState>
        ) : (
          <EmptyState icon={ListChecks} title="No jobs yet" action={maySubmit && <Button component={Link} to="/submit">Submit the first job</Button>}>
            {maySubmit ? (
              <>
                Submit one here, or in a terminal:
                <div style={{ marginTop: 10 }}>
                  <CopyLine text="muster run -- echo hello" />
                </div>
              </>
            ) : (
              "Jobs appear here as soon as they are submitted."
            )}
          </EmptyState>
        )
      ) : (
        <>
          {mayChange && selected.size > 0 && <BulkBar jobs={chosen} onClear={() => setSelected(noSelection)} />}
          <div className={css.table}>
            {list.fresh > 0 && (
              <Button size="compact-sm" radius="xl" className={css.pill} leftSection={<ArrowUp size={14} aria-hidden />} onClick={reveal} aria-live="polite">
                {plural(list.fresh, "new job")}
              </Button>
            )}
            <DataTable
              id="jobs"
              label="Jobs"
              rows={rows}
              columns={columns}
              rowKey={(j) => String(j.id)}
              rowHeight={phone ? 58 : 40}
              onOpen={open}
              sort={sort}
              onSort={onSort}
              {...(mayChange && { selected, onSelect: setSelected })}
              onEnd={() => void feed.more()}
              onVisible={onVisible}
            />
          </div>
          <Group gap="xs" mt={6} c="dimmed" fz="sm" mih={24}>
            <span>
              {plural(rows.length, "job")}
              {list.more ? " loaded" : ""}
              {list.loadingMore && ", loading more…"}
            </span>
            {search.sort && list.more && (
              <Text span fz="sm">
                · sorted among these
              </Text>
            )}
            {list.rows.length >= maxRows && <span>· narrow the filters to see older ones</span>}
            {list.stale && (
              <Tooltip label="The last refresh failed. It is tried again in a few seconds.">
                <ActionIcon size="sm" aria-label="The list may be out of date">
                  <TriangleAlert size={14} color="var(--state-cancelling)" aria-hidden />
                </ActionIcon>
              </Tooltip>
            )}
          </Group>
          <Incomplete error={list.error} retry={() => void feed.more()} />
        </>
      )}
    </>
  );
}

function without<T extends object, K extends keyof T>(o: T, ...keys: readonly K[]): Omit<T, K> {
  return Object.fromEntries(Object.entries(o).filter(([k]) => !keys.includes(k as K))) as Omit<T, K>;
}
