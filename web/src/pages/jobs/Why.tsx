import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleHelp, TriangleAlert } from "lucide-react";
import { get } from "@/api/client";
import type { Job } from "@/api/types";
import { count, localTimes, plural, sentence } from "@/ui/format";
import css from "./job.module.css";
import { group } from "./model/failures";

const sample = 500;

/** Why the job failed, or why it does not run: the answers that people open this page for. */
export function Why({ job }: { job: Job }) {
  const failed = (job.counts.failed ?? 0) + (job.counts.timed_out ?? 0);
  const active = (job.counts.running ?? 0) + (job.counts.assigned ?? 0);
  if (failed > 0) return <Failures job={job} failed={failed} />;
  if (active === 0 && (job.counts.queued ?? 0) > 0) return <Waiting job={job} />;
  return null;
}

function Failures({ job, failed }: { job: Job; failed: number }) {
  const id = String(job.id);
  const query = useQuery(get("/api/v1/jobs/{job}/tasks", { params: { path: { job: id }, query: { state: ["failed", "timed_out"], limit: sample } } }, { live: [`job:${id}`], every: 3_000 }));
  const tasks = query.data?.tasks.filter((t) => t.job === job.id) ?? [];
  const groups = group(tasks);
  if (groups.length === 0) return null;
  return (
    <section className={css.why} style={{ "--state": "var(--state-failed)" }} aria-label="Why tasks failed">
      <div className={css.whyHead}>
        <TriangleAlert size={16} color="var(--state-failed)" aria-hidden /> {plural(failed, "task")} failed
        {failed > tasks.length && <span className="dim">· reasons of the first {count(tasks.length)}</span>}
      </div>
      <ul className={css.whyList}>
        {groups.slice(0, 4).map((g) => (
          <li key={g.key}>
            <strong className="nowrap">
              {count(g.tasks.length)} × {g.reason}
            </strong>
            <span className={css.clamp} style={{ flex: "1 1 240px" }} title={g.message}>
              {g.message}
            </span>
            <span className="nowrap link">
              {g.tasks.slice(0, 3).map((t, i) => (
                <span key={t}>
                  {i > 0 && ", "}
                  <Link to="/tasks/$task" params={{ task: t }}>
                    {t}
                  </Link>
                </span>
              ))}
              {g.tasks.length > 3 && " …"}
            </span>
          </li>
        ))}
        {groups.length > 4 && <li className="dim">and {plural(groups.length - 4, "other reason")}</li>}
      </ul>
    </section>
  );
}

function Waiting({ job }: { job: Job }) {
  const id = String(job.id);
  const first = useQuery(get("/api/v1/jobs/{job}/tasks", { params: { path: { job: id }, query: { state: ["queued"], limit: 1 } } }, { live: [`job:${id}`, "workers"], every: 3_000 })).data?.tasks.find((t) => t.job === job.id);
  const task = first?.id ?? "";
  const why = useQuery({ ...get("/api/v1/tasks/{task}/explain", { params: { path: { task } } }, { live: [`task:${task}`, "workers"], every: 3_000 }), enabled: task !== "" }).data;
  if (!why || why.task !== task || why.state !== "queued") return null;
  return (
    <section className={css.why} style={{ "--state": "var(--state-queued)" }} aria-label="Why it waits">
      <div className={css.whyHead}>
        <CircleHelp size={16} color="var(--state-queued)" aria-hidden /> Why it waits
      </div>
      <div>
        {sentence(localTimes(why.summary))}{" "}
        {why.nearest && (
          <>
            <b>Nearest fix:</b> {sentence(localTimes(why.nearest))}{" "}
          </>
        )}
        <Link to="/tasks/$task" params={{ task }} className={`link ${css.inText}`}>
          Show it for each worker
        </Link>
      </div>
    </section>
  );
}
