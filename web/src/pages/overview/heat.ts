import type { OverviewGPU } from "@/api/types";
import { bytes, bytesOf, percent, plural, watts, none } from "@/ui/format";

export const measures = ["utilization", "memory", "temperature", "power"] as const;
export type Measure = (typeof measures)[number];

/** How a heat map of n cells fits into a width: square cells, as large as the height allows. */
export interface Grid {
  readonly columns: number;
  readonly rows: number;
  /** Pixels from one cell to the next. */
  readonly pitch: number;
  /** Pixels between two cells. */
  readonly gap: number;
}

export const maxPitch = 30;
export const minPitch = 4;

export function layout(n: number, width: number, maxHeight: number): Grid {
  for (let pitch = maxPitch; pitch > minPitch; pitch--) {
    const columns = Math.max(1, Math.floor(width / pitch));
    const rows = Math.ceil(n / columns);
    if (rows * pitch <= maxHeight) return { columns, rows, pitch, gap: gapOf(pitch) };
  }
  const columns = Math.max(1, Math.floor(width / minPitch));
  return { columns, rows: Math.ceil(n / columns), pitch: minPitch, gap: gapOf(minPitch) };
}

const gapOf = (pitch: number) => (pitch >= 16 ? 3 : pitch >= 8 ? 2 : 1);

/** The cell at a point, or -1. */
export function cellAt(grid: Grid, n: number, x: number, y: number): number {
  const column = Math.floor(x / grid.pitch);
  const row = Math.floor(y / grid.pitch);
  const i = row * grid.columns + column;
  return x < 0 || y < 0 || column >= grid.columns || i >= n ? -1 : i;
}

/** The measure as a share from 0 to 1, or undefined if it is unknown. Temperature spans 30 to 90 °C; power the largest of the fleet. */
export function heat(g: OverviewGPU, measure: Measure, maxPower: number): number | undefined {
  const clamp = (v: number) => Math.min(1, Math.max(0, v));
  switch (measure) {
    case "utilization":
      return g.utilization === undefined ? undefined : clamp(g.utilization);
    case "memory":
      return g.memory_used === undefined || !g.memory ? undefined : clamp(g.memory_used / g.memory);
    case "temperature":
      return g.temperature === undefined ? undefined : clamp((g.temperature - 30) / 60);
    case "power":
      return g.power === undefined || maxPower <= 0 ? undefined : clamp(g.power / maxPower);
  }
}

/** How many shades a measure is drawn in. */
const shadeCount = 33;

/** The cells by how they are drawn: shades from cold, which is 0, to hot, and those whose measure is unknown. */
export function shaded(cells: readonly OverviewGPU[], measure: Measure, maxPower: number): { shades: number[][]; unknown: number[] } {
  const shades = Array.from({ length: shadeCount }, (): number[] => []);
  const unknown: number[] = [];
  cells.forEach((g, i) => {
    const share = heat(g, measure, maxPower);
    // Only what does nothing is cold.
    if (share === undefined) unknown.push(i);
    else shades[Math.ceil(share * (shadeCount - 1))]?.push(i);
  });
  return { shades, unknown };
}

/** Devices of one worker are neighbours; those of a worker come in the order of its indices. */
export function ordered(gpus: readonly OverviewGPU[]): OverviewGPU[] {
  const workers = new Map<string, { key: string; own: OverviewGPU[] }>();
  let last: { key: string; own: OverviewGPU[] } | undefined;
  for (const g of gpus) {
    if (last?.own[0]?.worker !== g.worker) {
      last = workers.get(g.worker);
      // Numbers of one length compare as texts do, which is much faster than a collator is.
      if (!last) workers.set(g.worker, (last = { key: `${g.worker_name.toLowerCase().replace(/\d+/g, (n) => n.padStart(16, "0"))} ${g.worker}`, own: [] }));
    }
    last.own.push(g);
  }
  const sorted = [...workers.values()].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return sorted.flatMap(({ own }) => own.sort((a, b) => a.index - b.index));
}

/** One device in words. */
export function describe(g: OverviewGPU): string {
  const parts = [
    `${g.worker_name} GPU ${g.index}`,
    g.name,
    `${percent(g.utilization)} busy`,
    `${bytesOf(g.memory_used, g.memory)} in use`,
    g.temperature === undefined ? "" : `${Math.round(g.temperature)} °C`,
    g.power === undefined ? "" : watts(g.power),
    plural(g.tasks, "task"),
    g.quarantined ? `quarantined: ${g.quarantined}` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/** All devices in words, for a screen reader. */
export function summarize(gpus: readonly OverviewGPU[]): string {
  if (gpus.length === 0) return "No GPUs";
  let known = 0;
  let sum = 0;
  let memory = 0;
  let quarantined = 0;
  let busy = 0;
  for (const g of gpus) {
    if (g.utilization !== undefined) {
      known++;
      sum += g.utilization;
    }
    memory += g.memory;
    if (g.quarantined) quarantined++;
    if (g.tasks > 0) busy++;
  }
  const mean = known > 0 ? percent(sum / known) : none;
  return `${plural(gpus.length, "GPU")} with ${bytes(memory)} in all, ${busy} with tasks, ${mean} busy on average, ${quarantined} quarantined`;
}
