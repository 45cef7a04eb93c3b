import { SegmentedControl } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { Route } from "lucide-react";
import { lazy, Suspense, useMemo } from "react";
import type { Job } from "@/api/types";
import { count, duration, plural } from "@/ui/format";
import { CountsBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { useNow } from "@/ui/time";
import css from "./graph.module.css";
import page from "../job.module.css";
import type { TabProps } from "../job";
import { criticalPath, inOrder, ran, stateOf, type Stage } from "../model/graph";

const Flow = lazy(() => import("./Flow"));

const ms = (at: string | undefined) => (at ? Date.parse(at) : undefined);

/** The stages of a job with their needs. */
export function stagesOf(job: Job): Stage[] {
  return (job.groups ?? []).map((g) => {
    const spec = job.spec?.tasks?.[g.index];
    return { name: g.name, index: g.index, needs: spec?.needs ?? [], kind: spec?.kind ?? "", size: g.size, counts: g.counts, startedAt: ms(g.started_at), finishedAt: ms(g.finished_at) };
  });
}

/** What a stage is opened with: its elements, or its only task. */
export function targetOf(job: Job, stage: Stage): { task: string } | { stage: string } {
  const first = job.groups?.find((g) => g.index === stage.index)?.first ?? 0;
  return stage.size === 1 ? { task: `${job.id}.${first}` } : { stage: stage.name };
}

const maxStages = 1_000;

/** The stages of a job, unless they are too many to draw. */
export default function Graph(props: TabProps) {
  const n = props.job.groups?.length ?? 0;
  return n > maxStages ? <p className="dim">The job has {count(n)} stages, and a graph of more than {count(maxStages)} is not drawn: see its tasks.</p> : <Drawing {...props} />;
}

/** The stages as a graph or as a list, with the path that determines when the job ends. */
function Drawing({ job, search, set }: TabProps) {
  const phone = useMediaQuery("(max-width: 48em)") ?? false;
  const view = search.view === "graph" || search.view === "list" ? search.view : phone ? "list" : "graph";
  const stages = useMemo(() => stagesOf(job), [job]);
  const now = useNow();
  const path = criticalPath(stages, now);
  const onPath = new Set(path.stages);
  return (
    <>
      <div className={page.toolbar}>
        <SegmentedControl size="xs" value={view} onChange={(v) => set({ view: v === "list" ? "list" : "graph" })} data={[{ value: "graph", label: "Graph" }, { value: "list", label: "List" }]} aria-label="Show the stages as" />
        {path.stages.length > 1 && (
          <span className={css.path} title={`The stages that determined when the job ends: ${path.stages.join(" → ")}. Others have time to spare.`}>
            <Route size={15} aria-hidden /> Critical path: {plural(path.stages.length, "stage")}, {duration(path.seconds < 60 && !job.finished_at ? Math.floor(path.seconds) : path.seconds)}
          </span>
        )}
      </div>
      {view === "graph" ? (
        <Suspense fallback={<div className={css.frame} aria-busy="true" />}>
          <Flow job={job} stages={stages} path={JSON.stringify(path.stages)} />
        </Suspense>
      ) : (
        <ol className={css.list} aria-label="Stages in the order in which they run">
          {inOrder(stages).map((s) => {
            const target = targetOf(job, s);
            return (
              <li key={s.name} className={css.item} data-critical={onPath.has(s.name) || undefined}>
                <div className={css.itemHead}>
                  {"task" in target ? (
                    <Link to="/tasks/$task" params={{ task: target.task }} className="link truncate" title={s.name}>
                      {s.name}
                    </Link>
                  ) : (
                    <Link to="/jobs/$job" params={{ job: String(job.id) }} search={{ tab: "elements", stage: target.stage }} className="link truncate" title={s.name}>
                      {s.name}
                    </Link>
                  )}
                  <StateBadge state={stateOf(s.counts)} />
                  {onPath.has(s.name) && (
                    <span className={css.path}>
                      <Route size={14} aria-hidden /> critical path
                    </span>
                  )}
                  <span className="dim nowrap" style={{ marginLeft: "auto" }}>
                    {duration(ran(s, now))}
                  </span>
                </div>
                {s.size > 1 && <CountsBar counts={s.counts} />}
                {s.needs.length > 0 && <div className="dim">needs {s.needs.join(", ")}</div>}
              </li>
            );
          })}
        </ol>
      )}
    </>
  );
}
