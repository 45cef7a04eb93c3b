import { useEffect, useRef, useState } from "react";
import { useLive } from "@/api/live";
import type { MetricPoint } from "./series";

/** Points that are kept of one attempt until the server's answer has them. */
const most = 2_000;
const every = 500;

/** What the task reported since the page was opened, by attempt, as the events say it; drawn twice a second at most. */
export function useLiveMetrics(task: string): ReadonlyMap<number, readonly MetricPoint[]> {
  const kept = useRef(new Map<number, MetricPoint[]>());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const [shown, setShown] = useState<ReadonlyMap<number, readonly MetricPoint[]>>(new Map());
  useLive((batch) => {
    for (const e of batch.events) {
      const metrics = e.detail?.metrics;
      const attempt = e.detail?.attempt;
      if (e.task !== task || !metrics || !attempt) continue;
      const points = kept.current.get(attempt) ?? [];
      points.push({ at: e.at, metrics });
      if (points.length > most) points.splice(0, points.length - most);
      kept.current.set(attempt, points);
      timer.current ??= setTimeout(() => {
        timer.current = undefined;
        setShown(new Map([...kept.current].map(([a, p]) => [a, [...p]])));
      }, every);
    }
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown;
}
