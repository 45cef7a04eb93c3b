import { queryOptions } from "@tanstack/react-query";
import { json } from "@/api/client";
import type { Artifact, ElementSpec, LogMatches, LogWindow, TaskEvents } from "@/api/types";
import type { MetricsAnswer } from "./charts/series";

export type StreamFilter = "all" | "stdout" | "stderr";

const path = (task: string, rest: string, query: Record<string, string | number | boolean | undefined> = {}) => {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "") q.set(k, String(v));
  const text = q.toString();
  return `/api/v1/tasks/${encodeURIComponent(task)}${rest}${text ? `?${text}` : ""}`;
};

/** Which part of which log. */
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
  /** Lines in which programs say that they failed, in place of q. */
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

export function metricsQuery(task: string, live: boolean) {
  return queryOptions({
    queryKey: ["task-metrics", task],
    queryFn: ({ signal }) => json<MetricsAnswer>(path(task, "/metrics", { points: 2000 }), { signal }),
    refetchInterval: live ? 15_000 : false,
    meta: { live: [`task:${task}`], every: 5_000 },
  });
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
