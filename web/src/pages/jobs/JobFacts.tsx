import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { get } from "@/api/client";
import { finished, retried, taskStates, total, type Job } from "@/api/types";
import { bytes, cost, count, dateTime, duration, energy, percent } from "@/ui/format";
import { CountsBar } from "@/ui/Progress";
import { StateBadge } from "@/ui/StateBadge";
import { Elapsed, TimeAgo } from "@/ui/time";
import { labelsOf, ownerOf } from "./columns";
import css from "./job.module.css";

/** Progress, counts by state, and what is known of the job. Each count leads to its tasks. */
export function JobFacts({ job }: { job: Job }) {
  const usage = useQuery(get("/api/v1/jobs/{job}/usage", { params: { path: { job: String(job.id) } } }, { live: [`job:${job.id}`], every: 3_000 })).data;
  const used = usage && usage.job === job.id && usage.attempts > 0 ? usage : undefined;
  return (
    <>
      {(total(job.counts) > 1 || job.state === "running") && (
        <div className={css.progress}>
          <CountsBar counts={job.counts} progress={job.progress} text={[percent(job.progress), total(job.counts) > 1 && `${count(finished(job.counts))}/${count(total(job.counts))}`].filter(Boolean).join(" · ")} />
          <div className={css.counts}>
            {taskStates.map((s) => {
              const n = job.counts[s] ?? 0;
              if (n === 0) return null;
              return (
                <Link key={s} to="/jobs/$job" params={{ job: String(job.id) }} search={{ tab: "tasks", state: [s] }} className={css.countLink} title={`Show the ${s.replace("_", " ")} tasks`}>
                  <StateBadge state={s} count={count(n)} />
                </Link>
              );
            })}
          </div>
        </div>
      )}
      <dl className={css.facts}>
        <Fact name="Project">
          <Link to="/jobs" search={{ project: job.project }} className="link">
            {job.project}
          </Link>
        </Fact>
        {job.owner && (
          <Fact name="Owner" title={`API key ${job.owner}`}>
            <Link to="/jobs" search={{ owner: job.owner }} className="link">
              {ownerOf(job)}
            </Link>
          </Fact>
        )}
        <Fact name="Created">
          <TimeAgo at={job.created_at} />
        </Fact>
        {job.started_at && (
          <Fact name={job.finished_at ? "Took" : "Running for"} title={`${dateTime(job.started_at)} to ${job.finished_at ? dateTime(job.finished_at) : "now"}`}>
            <Elapsed from={job.started_at} to={job.finished_at} />
          </Fact>
        )}
        <Fact name="Priority">
          {job.priority}
          {job.held && `, held: muster edit ${job.id} --release lets it start`}
        </Fact>
        {used && retried(job.counts, used.attempts) && (
          <Fact name="Attempts" title="How many have ended: more than tasks, so some tasks were tried again">
            <Link to="/jobs/$job" params={{ job: String(job.id) }} search={{ tab: "timeline" }} className="link">
              {count(used.attempts)}
            </Link>
          </Fact>
        )}
        {used && used.cost > 0 && (
          <Fact name="Cost" title="The workers' prices times the wall time of ended attempts">
            {cost(used.cost)}
          </Fact>
        )}
        {used && used.energy_wh > 0 && (
          <Fact name="Energy" title="Of the devices, over all ended attempts">
            {energy(used.energy_wh)}
          </Fact>
        )}
        {used && used.cpu_seconds > 0 && <Fact name="CPU time">{duration(used.cpu_seconds)}</Fact>}
        {used && used.gpu_seconds > 0 && <Fact name="GPU time">{duration(used.gpu_seconds)}</Fact>}
        {used && used.memory_peak > 0 && (
          <Fact name="Peak memory" title="The most that one attempt had">
            {bytes(used.memory_peak)}
          </Fact>
        )}
        {labelsOf(job).map((l) => (
          <Fact key={l} name="Label" title={l}>
            <Link to="/jobs" search={{ label: [l] }} className="link">
              {l}
            </Link>
          </Fact>
        ))}
      </dl>
    </>
  );
}

function Fact({ name, title, children }: { name: string; title?: string; children: ReactNode }) {
  return (
    <div className={css.fact} title={title}>
      <dt>{name}</dt>
      <dd className="truncate">{children}</dd>
    </div>
  );
}
