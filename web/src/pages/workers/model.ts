import type { components } from "@/api/schema";
import type { OverviewGPU, Worker, WorkerState } from "@/api/types";
import { bytes, bytesOf, localTimes } from "@/ui/format";
import type { WorkersSearch } from "./search";

export type GPU = components["schemas"]["GPU"];
export type Grant = components["schemas"]["Grant"];
export type GPULoad = components["schemas"]["GPULoad"];

/** Sizes are numbers in answers; the schema allows texts because requests may have them. */
export function size(v: number | string | undefined): number | undefined {
  return typeof v === "number" ? v : undefined;
}

/** Whether the worker has a session now. */
export const connected = (w: Worker) => w.state === "pending" || w.state === "active" || w.state === "paused" || w.state === "draining";

/** A device with what it does. */
export interface Device {
  readonly gpu: GPU;
  readonly load?: GPULoad;
}

export function devices(w: Worker): Device[] {
  const loads = new Map((w.load?.gpus ?? []).map((l) => [l.uuid, l]));
  return (w.resources.gpus ?? []).map((gpu) => {
    const load = connected(w) ? loads.get(gpu.uuid) : undefined;
    return { gpu, ...(load && { load }) };
  });
}

/** What is given to tasks: offered minus free. */
export interface Reserved {
  readonly cpus?: number;
  readonly memory?: number;
}

export function reserved(w: Worker): Reserved {
  if (!w.free) return {};
  const memory = size(w.resources.memory);
  const free = size(w.free.memory);
  return { cpus: Math.max(0, w.resources.cpus - w.free.cpus), ...(memory !== undefined && free !== undefined && { memory: Math.max(0, memory - free) }) };
}

/** What a task was given, in words; GPUs by their index on the worker. */
export function grantText(grant: Grant | undefined, w: Worker): string {
  if (!grant) return "";
  const indexes = new Map((w.resources.gpus ?? []).map((g) => [g.uuid, g.index]));
  const gpus = (grant.gpus ?? []).map((uuid) => indexes.get(uuid) ?? uuid);
  const share = size(grant.gpu_memory);
  return [
    grant.cpus && (grant.cpus === 1 ? "1 core" : `${Number(grant.cpus.toFixed(2))} cores`),
    grant.memory && bytes(size(grant.memory)),
    gpus.length > 0 && `GPU ${gpus.join(", ")}`,
    gpus.length > 0 && share && `${bytes(share)} of VRAM`,
  ]
    .filter(Boolean)
    .join(" · ");
}

/** What a person can do about a worker that takes no tasks of its own accord. */
export const constrainedHelp =
  "Its running tasks continue. It takes tasks again by itself when the reason is gone: free what the reason names, or wait. The limits are options of muster worker, such as --max-cpu-percent, --max-memory-percent, --max-gpu-percent, --min-free-disk and --hours.";

/** Why a worker needs attention, the most important first; empty if it is healthy. */
export interface Trouble {
  readonly kind: "unreachable" | "quarantined" | "avoided" | "constrained" | "disk" | "outdated";
  readonly text: string;
}

export function troubles(w: Worker, serverVersion: string | undefined): Trouble[] {
  const list: Trouble[] = [];
  if (w.quarantined) list.push({ kind: "quarantined", text: `Its identity is not accepted: ${w.quarantined}. The command muster workers reset ${w.name} makes it a new one.` });
  if (w.state === "unreachable") list.push({ kind: "unreachable", text: "The server does not hear from it; its tasks are started elsewhere when their leases end." });
  for (const gpu of w.resources.gpus ?? []) {
    if (gpu.quarantined) list.push({ kind: "quarantined", text: `GPU ${gpu.index}: ${gpu.quarantined}` });
  }
  if (w.health?.avoided) list.push({ kind: "avoided", text: localTimes(w.health.avoided.replace(/^is avoided /, "")) });
  if (w.constrained) list.push({ kind: "constrained", text: w.constrained });
  const disk = connected(w) ? w.load?.disk : undefined;
  if (disk?.low) list.push({ kind: "disk", text: `${bytesOf(size(disk.free), size(disk.total))} of the data folder's disk are free. It takes no new tasks when less than its --min-free-disk is free.` });
  if (outdated(w, serverVersion)) list.push({ kind: "outdated", text: `It runs version ${w.version ?? "unknown"}, the server ${serverVersion ?? "unknown"}.` });
  return list;
}

export function outdated(w: Worker, serverVersion: string | undefined): boolean {
  return connected(w) && w.version !== undefined && serverVersion !== undefined && w.version !== serverVersion;
}

/** What a search looks at of a worker itself, in lower case. */
function ownText(w: Worker): string {
  const labels = Object.entries(w.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  return [w.name, w.id, w.state, w.version ?? "", w.address ?? "", ...(w.tags ?? []), ...labels].join("\n").toLowerCase();
}

/** Everything that a search looks at, in lower case. */
function haystack(w: Worker): string {
  const gpus = (w.resources.gpus ?? []).map((g) => `${g.vendor} ${g.name} ${g.uuid}`);
  return [ownText(w), ...gpus].join("\n").toLowerCase();
}

const wordsOf = (q: string) => q.toLowerCase().split(/\s+/).filter(Boolean);

/** The devices of some workers; each word of the search is found in the device or in its worker. */
export function filterGPUs(gpus: readonly OverviewGPU[], workers: readonly Worker[], q: string): OverviewGPU[] {
  const texts = new Map(workers.map((w) => [w.id, ownText(w)]));
  const wanted = wordsOf(q);
  return gpus.filter((g) => {
    const worker = texts.get(g.worker);
    if (worker === undefined) return false;
    const text = `${worker}\n${g.name}\n${g.uuid}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

export function filter(workers: readonly Worker[], search: WorkersSearch, serverVersion: string | undefined): Worker[] {
  const wanted = wordsOf(search.q ?? "");
  return workers.filter((w) => {
    if (search.state ? w.state !== search.state : false) return false;
    if (search.attention && troubles(w, serverVersion).length === 0) return false;
    if (wanted.length === 0) return true;
    const text = haystack(w);
    return wanted.every((word) => text.includes(word));
  });
}

export type Action = "approve" | "drain" | "pause" | "resume" | "heal" | "remove";

/** What can be done to a worker in its state. */
export function actionsOf(w: Worker): Action[] {
  const heal: Action[] = connected(w) && (w.resources.gpus ?? []).some((g) => g.quarantined) ? ["heal"] : [];
  const away: Action[] = w.paused || w.draining ? ["resume", "remove"] : ["remove"];
  const byState: Record<WorkerState, Action[]> = {
    pending: ["approve", "remove"],
    // Resume resets the failures because of which the server avoids the worker.
    active: w.health?.avoided ? ["resume", "pause", "drain"] : ["pause", "drain"],
    paused: ["resume", "drain"],
    draining: ["resume", "pause"],
    unreachable: away,
    gone: away,
  };
  return [...(byState[w.state as WorkerState] ?? []), ...heal];
}

const units: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** The seconds of a typed duration: 90s, 10m, 1h30m, 7d; undefined if it is invalid. */
export function parseDuration(text: string): number | undefined {
  const parts = text.trim().match(/\d+(\.\d+)?[smhd]/g);
  if (!parts || parts.join("") !== text.trim()) return undefined;
  return parts.reduce((sum, part) => sum + Number(part.slice(0, -1)) * (units[part.slice(-1)] ?? 0), 0);
}

/** The severity of a share, as a word in addition to the colour. */
export function level(share: number | undefined): "idle" | "busy" | "full" | undefined {
  if (share === undefined) return undefined;
  return share < 0.1 ? "idle" : share < 0.9 ? "busy" : "full";
}
