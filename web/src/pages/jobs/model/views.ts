import type { JobsSearch } from "../search";

/** A search that the user gave a name; it is shared as the page's URL. */
export interface SavedView {
  readonly name: string;
  readonly search: JobsSearch;
}

export const maxViews = 30;
export const maxViewName = 40;

/** What everybody has. */
export const builtIn: readonly SavedView[] = [
  { name: "All", search: {} },
  { name: "Active", search: { state: ["waiting", "queued", "running"] } },
  { name: "Failed", search: { state: ["failed", "timed_out"] } },
];

/** A search without order of its fields and lists, to tell whether two are the same. */
export function canonical(search: JobsSearch): string {
  const entries = Object.entries(search)
    .filter(([, v]) => v !== undefined && v !== "" && !(Array.isArray(v) && v.length === 0))
    .map(([k, v]) => [k, Array.isArray(v) ? [...(v as string[])].sort() : v] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify(entries);
}

/** Adds a view, or replaces that of the same name; the oldest goes when there are too many. */
export function save(views: readonly SavedView[], name: string, search: JobsSearch): SavedView[] {
  const clean = name.trim().slice(0, maxViewName);
  if (clean === "") return [...views];
  return [...views.filter((v) => v.name !== clean), { name: clean, search }].slice(-maxViews);
}

/** Reads what local storage has; anything else than views is dropped. */
export function read(value: unknown, validate: (s: Record<string, unknown>) => JobsSearch): SavedView[] {
  if (!Array.isArray(value)) return [];
  return value
    .filter((v): v is { name: string; search: Record<string, unknown> } => typeof v === "object" && v !== null && typeof (v as SavedView).name === "string" && typeof (v as SavedView).search === "object" && (v as SavedView).search !== null)
    .slice(0, maxViews)
    .map((v) => ({ name: v.name.slice(0, maxViewName), search: validate(v.search) }));
}
