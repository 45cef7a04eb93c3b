import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { HistoryData } from "@/api/hooks";
import type { Overview } from "@/api/types";
import { cost, count, plural, rate, watts } from "@/ui/format";
import { Sparkline } from "@/ui/Sparkline";
import css from "./overview.module.css";

/** What the fleet is doing, in one line of figures. */
export function Tiles({ overview: o, history, span }: { overview: Overview; history: HistoryData | undefined; span: string }) {
  const series = (name: string) => history?.series[name] ?? [];
  const here = o.workers.pending + o.workers.active + o.workers.paused + o.workers.draining;
  const off = [
    [o.workers.unreachable, "unreachable"],
    [o.workers.gone, "gone"],
    [o.workers.pending, "pending"],
    [o.workers.paused, "paused"],
    [o.workers.draining, "draining"],
    [o.workers.constrained, "constrained"],
  ].filter(([n]) => n);
  return (
    <div className={css.tiles}>
      <Tile label="Workers" value={count(here)} note={off.length > 0 ? off.map(([n, word]) => `${n} ${word}`).join(", ") : "all active"} to="/workers">
        <Sparkline values={series("workers")} label={`connected workers over the last ${span}`} color="var(--chart-6)" />
      </Tile>
      <Tile label="Running tasks" value={count(o.tasks.running ?? 0)} note={`${count(o.tasks.queued ?? 0)} queued, ${count(o.tasks.waiting ?? 0)} waiting`} to="/jobs">
        <Sparkline values={series("running")} label={`running tasks over the last ${span}`} color="var(--state-running)" />
      </Tile>
      <Tile label="Throughput" value={rate(o.rate.finished)} note={o.rate.failed > 0 ? `${rate(o.rate.failed)} fail` : "nothing fails"}>
        <Sparkline values={series("finished")} label={`tasks finished per second over the last ${span}`} color="var(--state-succeeded)" />
      </Tile>
      {(o.capacity.gpus > 0 || o.used.power > 0) && (
        <Tile label="Power" value={watts(o.used.power)} note={`of ${plural(o.capacity.gpus, "GPU")}`}>
          <Sparkline values={series("power")} label={`power over the last ${span}`} color="var(--chart-3)" />
        </Tile>
      )}
      {o.price_per_hour > 0 && (
        <Tile label="Cost per hour" value={cost(o.cost_per_hour)} note={`${cost(o.price_per_hour)} for all workers`}>
          <Sparkline values={series("cost_per_hour")} label={`cost per hour over the last ${span}`} color="var(--chart-2)" />
        </Tile>
      )}
    </div>
  );
}

function Tile({ label, value, note, to, children }: { label: string; value: string; note: string; to?: "/workers" | "/jobs"; children: ReactNode }) {
  return (
    <div className={`card ${css.tile ?? ""}`}>
      <div className={css.tileLabel}>
        {to ? (
          <Link to={to} className="link">
            {label}
          </Link>
        ) : (
          label
        )}
      </div>
      <div className={css.tileValue}>{value}</div>
      <div className={css.tileNote} title={note}>
        {note}
      </div>
      <div className={css.tileSpark}>{children}</div>
    </div>
  );
}
