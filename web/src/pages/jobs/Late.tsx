import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "@/api/client";
import { useSession } from "@/api/session";
import type { Job } from "@/api/types";
import { plural, words } from "@/ui/format";
import { TimeAgo } from "@/ui/time";
import { WorkerLink } from "@/ui/WorkerLink";
import css from "./job.module.css";

/** Reports of attempts that arrived after the server had declared them lost. Most jobs have none, and shared links may not read them. */
export function Late({ job }: { job: Job }) {
  const id = String(job.id);
  const enabled = useSession().me?.job === undefined;
  const { data } = useQuery({ ...get("/api/v1/jobs/{job}/late", { params: { path: { job: id } } }, { live: [`job:${id}`], every: 10_000 }), placeholderData: undefined, enabled });
  const late = data?.late ?? [];
  if (late.length === 0) return null;
  return (
    <details className={css.why} style={{ "--state": "var(--state-cancelling)" }}>
      <summary>{plural(late.length, "late report")}: attempts that ended after the server had given them up. Their results do not count.</summary>
      <ul className={css.whyList}>
        {late.map((l) => (
          <li key={`${l.attempt} ${l.at}`}>
            <Link to="/tasks/$task" params={{ task: l.attempt.split("#")[0] ?? "" }} className="link nowrap">
              {l.attempt.replace("#", ", attempt ")}
            </Link>
            <span className="nowrap">{words(l.outcome)}</span>
            <span className={css.clamp} style={{ flex: "1 1 200px" }} title={l.message}>
              {l.message ?? (l.reason ? words(l.reason) : "")}
            </span>
            <WorkerLink id={l.worker} name={l.worker_name} />
            <span className="dim nowrap">
              <TimeAgo at={l.at} />
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}
