import { useSyncExternalStore } from "react";
import { ago, between, dateTime, duration } from "./format";

// One clock for all times on the page: it ticks each second while something shows it and the tab is visible.
let now = Date.now();
const watchers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function watch(watcher: () => void) {
  watchers.add(watcher);
  timer ??= setInterval(() => {
    if (document.hidden) return;
    now = Date.now();
    for (const w of watchers) w();
  }, 1000);
  return () => {
    watchers.delete(watcher);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time of now in milliseconds, to the second. */
export function useNow(): number {
  return useSyncExternalStore(watch, () => {
    if (watchers.size === 0) now = Math.floor(Date.now() / 1000) * 1000;
    return now;
  });
}

/** "3 m ago"; its title is the exact time. */
export function TimeAgo({ at }: { at: string | undefined }) {
  const text = ago(at, useNow());
  return (
    <time dateTime={at} title={dateTime(at)} className="nowrap">
      {text}
    </time>
  );
}

/** How long something takes or took; it counts while there is no end. */
export function Elapsed({ from, to }: { from: string | undefined; to?: string | undefined }) {
  const current = useNow();
  return (
    <span className="nowrap" title={from ? `${dateTime(from)} to ${to ? dateTime(to) : "now"}` : undefined}>
      {duration(to ? between(from, to) : flat(between(from, undefined, current)))}
    </span>
  );
}

// A running clock shows whole seconds.
function flat(seconds: number | undefined) {
  return seconds === undefined ? undefined : Math.floor(seconds);
}
