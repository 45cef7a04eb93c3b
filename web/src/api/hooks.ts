import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { client, data, get } from "./client";
import type { Overview } from "./types";

/** The fleet at this moment; the server answers it from memory. */
export function useOverview() {
  const init = { params: { query: { gpus: "false" as const } } };
  return useQuery({ ...get("/api/v1/overview", init, { live: ["jobs", "tasks", "workers"], every: 2_000 }), refetchInterval: 10_000, staleTime: 1_500 });
}

/**
 * What every device of the fleet does. Workers report it with their heartbeats, which are no events. The list may be long, and most of it
 * differs each time: it is not compared with the one before.
 */
export function useGPUs() {
  return useQuery({ ...get("/api/v1/overview", {}, { live: ["workers"], every: 5_000 }), refetchInterval: (q) => ((q.state.data?.gpus.length ?? 0) > 1_000 ? 10_000 : 4_000), structuralSharing: false, select: gpusOf });
}

const gpusOf = (o: Overview) => o.gpus;

/** "90m" as seconds; units s, m, h and d. */
export function spanSeconds(span: string): number {
  const m = /^(\d+)([smhd])$/.exec(span);
  const unit = { s: 1, m: 60, h: 3600, d: 86_400 }[m?.[2] ?? ""];
  return m && unit ? Number(m[1]) * unit : 3600;
}

interface Points {
  readonly step: number;
  readonly times: string[];
  readonly seconds: number[];
  readonly span: { from: number; to: number };
  readonly series: Record<string, (number | null)[] | null>;
}

/** Leaves out the time before the first known value, so that a new server's charts are not empty; ten minutes always stay. */
export function known<T extends Points>(h: T): T {
  const first = h.seconds.findIndex((_, i) => Object.values(h.series).some((values) => typeof values?.[i] === "number"));
  if (first < 0) return h;
  const from = Math.max(h.span.from, Math.min((h.seconds[first] ?? 0) - h.step, h.span.to - 600));
  const start = h.seconds.findIndex((t) => t >= from);
  if (start <= 0) return h;
  const series = Object.fromEntries(Object.entries(h.series).map(([name, values]) => [name, values && values.slice(start)]));
  return { ...h, times: h.times.slice(start), seconds: h.seconds.slice(start), series, span: { from, to: h.span.to } };
}

/** How the fleet, or one worker, was loaded over the last span ("1h", "7d"), in a resolution that fits. */
export function history(span: string, worker?: string, points = 240) {
  const seconds = spanSeconds(span);
  return queryOptions({
    queryKey: ["/api/v1/history", span, worker ?? "", points] as const,
    queryFn: async ({ signal }) => {
      const from = new Date(Date.now() - seconds * 1000).toISOString();
      const h = await data(client.GET("/api/v1/history", { params: { query: { from, points, ...(worker && { worker }) } }, signal }));
      const to = Date.now() / 1000;
      return known({ ...h, seconds: h.times.map((t) => Date.parse(t) / 1000), span: { from: to - seconds, to } });
    },
    // A point is new when its step has ended.
    refetchInterval: Math.max(10_000, (seconds / points) * 1000),
    staleTime: 5_000,
    placeholderData: keepPreviousData,
  });
}

export type HistoryData = Awaited<ReturnType<NonNullable<Exclude<ReturnType<typeof history>["queryFn"], symbol>>>>;
