import type { HistoryData } from "@/api/hooks";
import type { Overview } from "@/api/types";
import { bytes, bytesOf, digits, none, percent } from "@/ui/format";
import { TimeChart, type ChartSeries } from "@/ui/TimeChart";
import css from "./overview.module.css";

interface Resource {
  readonly name: string;
  readonly used: number;
  readonly reserved: number | undefined;
  readonly capacity: number;
  readonly text: string;
  readonly format: (v: number) => string;
  readonly series: readonly ChartSeries[];
}

function resources(o: Overview, h: HistoryData | undefined): Resource[] {
  const values = (name: string) => h?.series[name] ?? [];
  const lines = (name: string, reserved: boolean): ChartSeries[] => [
    { label: "used", values: values(`${name}_used`), color: "var(--chart-1)", fill: true },
    ...(reserved ? [{ label: "reserved", values: values(`${name}_reserved`), color: "var(--chart-2)", step: true }] : []),
    { label: "capacity", values: values(`${name}_capacity`), color: "var(--chart-8)", dash: true, step: true },
  ];
  const all: Resource[] = [
    { name: "CPU", used: o.used.cpus, reserved: o.reserved.cpus, capacity: o.capacity.cpus, text: `${digits(o.used.cpus, 2)} of ${digits(o.capacity.cpus)} cores busy`, format: (v) => digits(v), series: lines("cpu", true) },
    { name: "Memory", used: o.used.memory, reserved: o.reserved.memory, capacity: o.capacity.memory, text: `${bytesOf(o.used.memory, o.capacity.memory)} used`, format: bytes, series: lines("memory", true) },
    { name: "GPU", used: o.used.gpus, reserved: o.reserved.gpus, capacity: o.capacity.gpus, text: `${digits(o.used.gpus, 2)} of ${digits(o.capacity.gpus)} devices busy`, format: (v) => digits(v), series: lines("gpu", true) },
    { name: "VRAM", used: o.used.gpu_memory, reserved: undefined, capacity: o.capacity.gpu_memory, text: `${bytesOf(o.used.gpu_memory, o.capacity.gpu_memory)} used`, format: bytes, series: lines("gpu_memory", false) },
  ];
  return all.filter((r) => r.capacity > 0);
}

/** Capacity and use of each resource, now and over the span. */
export function Capacity({ overview, history }: { overview: Overview; history: HistoryData | undefined }) {
  const list = resources(overview, history);
  return (
    <section aria-label="Capacity and use" className={css.capacity} data-many={list.length > 2 || undefined}>
      {list.map((r) => (
        <div key={r.name} className="card">
          <div className={css.capacityHead}>
            <h2 className={css.heading}>{r.name}</h2>
            <b className={css.big}>{percent(r.used / r.capacity)}</b>
          </div>
          <Bar used={r.used / r.capacity} reserved={r.reserved === undefined ? undefined : r.reserved / r.capacity} label={r.name} />
          <div className={css.capacityText}>
            <span>{r.text}</span>
            <span>{r.reserved === undefined ? "" : `${percent(r.reserved / r.capacity)} reserved`}</span>
          </div>
          <TimeChart title={`${r.name} over time`} times={history?.seconds ?? []} series={r.series} format={r.format} height={list.length > 2 ? 120 : 220} sync="overview" min={0} from={history?.span.from} to={history?.span.to} />
        </div>
      ))}
    </section>
  );
}

/** What is used fills the bar, what is reserved is a bracket over it. */
function Bar({ used, reserved, label }: { used: number; reserved: number | undefined; label: string }) {
  const part = (v: number) => `${Math.min(100, Math.max(0, v * 100))}%`;
  return (
    <div className={css.bar} role="img" aria-label={`${label}: ${percent(used)} used, ${reserved === undefined ? none : percent(reserved)} reserved`}>
      <div className={css.barUsed} style={{ width: part(used) }} />
      {reserved !== undefined && <div className={css.barReserved} style={{ width: part(reserved) }} />}
    </div>
  );
}
