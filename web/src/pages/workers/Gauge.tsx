import { bytes, bytesOf, percent, watts } from "@/ui/format";
import css from "./workers.module.css";
import { level, size, type Device } from "./model";

/** A share as a bar with its words; `mark` is a second share on the same bar, such as what is reserved. */
export function Bar({ label, value, mark, text, hint, compact = false }: { label: string; value: number | undefined; mark?: number | undefined; text: string; hint?: string; compact?: boolean }) {
  const clamp = (v: number) => Math.min(1, Math.max(0, v));
  return (
    <div className={css.bar} data-compact={compact || undefined} title={hint}>
      <span className={css.barLabel}>{label}</span>
      <div className={css.track} role="meter" aria-label={hint ? `${label}: ${hint}` : label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(clamp(value ?? 0) * 100)} aria-valuetext={text}>
        {mark !== undefined && mark > 0 && <div className={css.mark} style={{ width: `${clamp(mark) * 100}%` }} />}
        <div className={css.fill} data-level={level(value)} style={{ width: `${clamp(value ?? 0) * 100}%` }} />
      </div>
      <span className={css.barText}>{text}</span>
    </div>
  );
}

/** A device: how busy it is, its memory, temperature and power. */
export function GPUGauge({ device }: { device: Device }) {
  const { gpu, load } = device;
  const capacity = size(gpu.memory);
  const used = size(load?.memory);
  return (
    <div className={css.gpu} data-quarantined={gpu.quarantined ? "" : undefined}>
      <div className={css.gpuHead}>
        <span className="truncate" title={`${gpu.vendor} ${gpu.name}, ${gpu.uuid}`}>
          <b>{gpu.index}</b> {gpu.name}
          {gpu.mig && ` ${gpu.mig}`}
        </span>
        <span className="dim nowrap">
          {load?.temperature !== undefined && `${Math.round(load.temperature)} °C`}
          {load?.power !== undefined && ` · ${watts(load.power)}`}
        </span>
      </div>
      <Bar label="use" value={load?.utilization} text={percent(load?.utilization)} />
      <Bar label="VRAM" value={used !== undefined && capacity ? used / capacity : undefined} text={used === undefined ? bytes(capacity) : bytesOf(used, capacity)} />
      {gpu.quarantined && <div className={css.warn}>Quarantined: {gpu.quarantined}</div>}
    </div>
  );
}

/** All devices of a worker in one line, one box each, for a table. */
export function GPUStrip({ list }: { list: readonly Device[] }) {
  if (list.length === 0) return <span className="dim">none</span>;
  const shown = list.slice(0, 8);
  const busy = list.reduce((sum, d) => sum + (d.load?.utilization ?? 0), 0);
  const known = list.some((d) => d.load?.utilization !== undefined);
  return (
    <span className={css.strip} title={list.map((d) => `${d.gpu.index} ${d.gpu.name}: ${percent(d.load?.utilization)}${d.gpu.quarantined ? `, quarantined: ${d.gpu.quarantined}` : ""}`).join("\n")}>
      {shown.map((d) => (
        <span key={d.gpu.uuid} className={css.cell} data-quarantined={d.gpu.quarantined ? "" : undefined} style={{ "--use": `${(d.load?.utilization ?? 0) * 100}%` }} aria-hidden />
      ))}
      <span className="nowrap">
        {list.length} × {known ? percent(busy / list.length) : "–"}
      </span>
    </span>
  );
}
