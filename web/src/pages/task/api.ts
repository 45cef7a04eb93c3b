import { queryOptions } from "@tanstack/react-query";
import { get, json } from "@/api/client";
import type { Artifact, ElementSpec, LogMatches, LogWindow, TaskEvents } from "@/api/types";

export type StreamFilter = "all" | "stdout" | "stderr";

const path = (task: string, rest: string, query: Record<string, string | number | boolean | undefined> = {}) => {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "") q.set(k, String(v));
  const text = q.toString();
  return `/api/v1/tasks/${encodeURIComponent(task)}${rest}${text ? `?${text}` : ""}`;
};

/** A part of a log. */
export interface LogOf {
  readonly task: string;
  readonly attempt: number;
  readonly stream: StreamFilter;
}

export function logWindow(log: LogOf, at: { offset?: number; direction: "forward" | "backward"; bytes: number }, signal?: AbortSignal): Promise<LogWindow> {
  return json(path(log.task, "/logs/window", { attempt: log.attempt, stream: log.stream, offset: at.offset, direction: at.direction, bytes: at.bytes }), signal ? { signal } : {});
}

export interface LogQuery {
  readonly q: string;
  readonly regex: boolean;
  readonly matchCase: boolean;
  /** Search for error lines of programs instead of q. */
  readonly errors?: boolean;
}

export function logSearch(log: LogOf, query: LogQuery, at: { offset?: number; direction: "forward" | "backward"; limit: number }, signal?: AbortSignal): Promise<LogMatches> {
  const what = query.errors ? { errors: true } : { q: query.q, regex: query.regex || undefined, case: query.matchCase || undefined };
  return json(path(log.task, "/logs/search", { ...what, attempt: log.attempt, stream: log.stream, offset: at.offset, direction: at.direction, limit: at.limit }), signal ? { signal } : {});
}

/** The address of the whole output as text. */
export function logDownload(log: LogOf): string {
  return path(log.task, "/logs", { attempt: log.attempt, stream: log.stream, download: true });
}

/** What of an attempt is measured: former attempts do not change any more; the newest is read again with its events, the last of these at its end. */
const measured = (task: string, newest: boolean, every: number) => (newest ? { live: [`task:${task}`], every } : {});

/** What an attempt reported. Events have the newest value of each metric only, and not which of them are new. */
export function metricsQuery(task: string, attempt: number, newest: boolean) {
  return { ...get("/api/v1/tasks/{task}/metrics", { params: { path: { task }, query: { attempt, points: 2000 } } }, measured(task, newest, 2_000)), placeholderData: undefined, staleTime: newest ? 2_000 : 60_000 };
}

/** What an attempt used. While it runs it is measured every few seconds, which is no event. */
export function usageQuery(task: string, attempt: number, newest: boolean, runs: boolean) {
  return {
    ...get("/api/v1/tasks/{task}/usage", { params: { path: { task }, query: { attempt, points: 1000 } } }, measured(task, newest, 5_000)),
    placeholderData: undefined,
    refetchInterval: newest && runs ? 5_000 : (false as const),
    staleTime: newest ? 2_000 : 60_000,
  };
}

export function specQuery(task: string) {
  return queryOptions({
    queryKey: ["task-spec", task],
    queryFn: ({ signal }) => json<ElementSpec>(path(task, "/spec"), { signal }),
    staleTime: 60_000,
  });
}

export function eventsQuery(task: string) {
  return queryOptions({
    queryKey: ["task-events", task],
    queryFn: ({ signal }) => json<TaskEvents>(path(task, "/events"), { signal }),
    meta: { live: [`task:${task}`] },
  });
}

/** Where the bytes of an artifact are. */
export function artifactUrl(task: string, attempt: number | undefined, a: Artifact, download = false): string {
  const name = a.name.split("/").map(encodeURIComponent).join("/");
  return path(task, `/artifacts/${name}`, { attempt, download: download || undefined });
}
