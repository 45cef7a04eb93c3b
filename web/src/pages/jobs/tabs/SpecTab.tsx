import { Button, NumberInput, SegmentedControl, Select, Skeleton, Switch } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Download, FileCode2, Files } from "lucide-react";
import { useMemo, useState } from "react";
import { get } from "@/api/client";
import { ApiError } from "@/api/error";
import { useCan, useSession } from "@/api/session";
import { CopyButton } from "@/ui/CopyLine";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { plural } from "@/ui/format";
import { toYAML } from "@/ui/yaml";
import { specQuery } from "../../task/api";
import type { TabProps } from "../job";
import page from "../job.module.css";
import { download, fileName } from "../model/csv";
import { changes, diffLines } from "../model/diff";
import { SpecDiff, SpecText } from "../SpecText";

type View = "spec" | "previous" | "resolved";

/** The spec as YAML, compared with the previous run, or as it was resolved for one task. */
export default function SpecTab({ job, search, set }: TabProps) {
  const [wrap, setWrap] = useLocalStorage({ key: "muster-spec-wrap", defaultValue: false });
  const maySubmit = useCan("submit jobs");
  const { me } = useSession();
  // A shared link shows one job: it may not read the previous one.
  const views = [{ value: "spec", label: "Spec" }, { value: "resolved", label: "Resolved" }, ...(me?.job ? [] : [{ value: "previous", label: "Changes" }])];
  const view: View = search.view === "resolved" ? "resolved" : search.diff === "previous" && !me?.job ? "previous" : "spec";
  const text = useMemo(() => (job.spec ? toYAML(job.spec) : ""), [job.spec]);
  const choose = (v: string) => set({ diff: v === "previous" ? "previous" : undefined, view: v === "resolved" ? "resolved" : undefined });
  if (!job.spec) return <EmptyState icon={FileCode2} title="This job has no spec">The server does not keep it.</EmptyState>;
  return (
    <>
      <div className={page.toolbar}>
        <SegmentedControl size="xs" value={view} onChange={choose} data={views} aria-label="Show" />
        <Switch size="xs" label="Wrap lines" checked={wrap} onChange={(e) => setWrap(e.currentTarget.checked)} />
        <span style={{ marginLeft: "auto", display: "inline-flex", gap: 6, alignItems: "center" }}>
          <CopyButton text={text} label="Copy the spec" />
          <Button size="xs" variant="default" leftSection={<Download size={14} aria-hidden />} onClick={() => download(`${fileName(job.name, job.id)}.yaml`, text, "application/yaml")}>
            Download
          </Button>
          {maySubmit && (
            <Button size="xs" variant="default" component={Link} to={`/submit?from=${job.id}`}>
              Edit and run
            </Button>
          )}
        </span>
      </div>
      {view === "spec" && <SpecText text={text} wrap={wrap} />}
      {view === "previous" && <Previous job={job} text={text} wrap={wrap} />}
      {view === "resolved" && <Resolved job={job} search={search} set={set} wrap={wrap} />}
    </>
  );
}

function Previous({ job, text, wrap }: { job: TabProps["job"]; text: string; wrap: boolean }) {
  const query = useQuery({ ...get("/api/v1/jobs/{job}/previous", { params: { path: { job: String(job.id) } } }), staleTime: 60_000, placeholderData: undefined });
  const before = query.data;
  const lines = useMemo(() => (before?.spec ? diffLines(toYAML(before.spec), text) : []), [before, text]);
  if (query.error instanceof ApiError && query.error.status === 404) {
    return (
      <EmptyState icon={Files} title="There is no earlier run">
        No older job of the project {job.project} has the name {job.name}. Compare it with any other job under Compare.
      </EmptyState>
    );
  }
  if (query.error) return <ErrorState error={query.error} retry={() => void query.refetch()} />;
  if (!before) return <Skeleton height={200} role="status" aria-label="Loading the previous run" />;
  const { removed, added } = changes(lines);
  return (
    <>
      <p className={page.note} style={{ marginTop: 0, marginBottom: 8 }}>
        Compared with{" "}
        <Link to="/jobs/$job" params={{ job: String(before.id) }} className="link">
          job {before.id}
        </Link>
        :{" "}
        {removed + added === 0 ? (
          "nothing was changed."
        ) : (
          <>
            {plural(removed, "line")} removed, {plural(added, "line")} added.
          </>
        )}
      </p>
      {removed + added > 0 && <SpecDiff lines={lines} wrap={wrap} label={`Changes since job ${before.id}`} />}
    </>
  );
}

/** What one task got: the stage's fields with all references resolved. */
function Resolved({ job, search, set, wrap }: Pick<TabProps, "job" | "search" | "set"> & { wrap: boolean }) {
  const groups = job.groups ?? [];
  const group = groups.find((g) => g.name === search.stage) ?? groups[0];
  const last = group ? group.first + group.size - 1 : 0;
  const number = group ? Math.min(last, Math.max(group.first, search.at ?? group.first)) : 0;
  // What is typed counts when it is the number of a task of the stage.
  const [typed, setTyped] = useState<number | string>(number);
  const task = `${job.id}.${number}`;
  const query = useQuery({ ...specQuery(task), meta: { live: [`task:${task}`] } });
  const choose = (name: string | null) => {
    setTyped(groups.find((g) => g.name === name)?.first ?? 0);
    set({ stage: name ?? undefined, at: undefined });
  };
  return (
    <>
      <div className={page.toolbar}>
        <Select size="xs" aria-label="Stage" data={groups.map((g) => ({ value: g.name, label: g.name }))} value={group?.name ?? null} onChange={choose} allowDeselect={false} w={180} />
        {group && group.size > 1 && (
          <NumberInput
            size="xs"
            w={110}
            aria-label={`Task, ${group.first} to ${last}`}
            min={group.first}
            max={last}
            clampBehavior="none"
            allowDecimal={false}
            allowNegative={false}
            value={typed}
            onChange={(v) => {
              setTyped(v);
              if (typeof v === "number" && v >= group.first && v <= last) set({ at: v });
            }}
            onBlur={() => setTyped(number)}
            error={typed !== number}
          />
        )}
        <Link to="/tasks/$task" params={{ task }} className="link">
          Open task {task}
        </Link>
      </div>
      {query.error ? <ErrorState error={query.error} retry={() => void query.refetch()} /> : query.isPending ? <Skeleton height={200} role="status" aria-label="Loading the resolved spec" /> : <SpecText text={toYAML(query.data)} wrap={wrap} />}
    </>
  );
}
