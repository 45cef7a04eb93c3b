import { useEffect, useSyncExternalStore } from "react";
import { live, type Batch } from "@/api/live";

/** A list that live events keep up to date. */
interface Feed<L> {
  subscribe: (listener: () => void) => () => void;
  get: () => L;
  /** Loads the list; what is under way ends when the returned function is called. */
  start: () => () => void;
  /** Takes in what happened. */
  note: (batch: Batch) => void;
  /** Reads stale data again when it is due. */
  tick: (now: number) => Promise<void>;
}

/** Runs a feed while the component is shown, and returns its list. */
export function useFeed<L>(feed: Feed<L>): L {
  useEffect(() => {
    const stop = feed.start();
    const leave = live.subscribe((b) => feed.note(b));
    const timer = setInterval(() => {
      if (!document.hidden) void feed.tick(performance.now());
    }, 250);
    return () => {
      stop();
      leave();
      clearInterval(timer);
    };
  }, [feed]);
  return useSyncExternalStore(feed.subscribe, feed.get);
}
