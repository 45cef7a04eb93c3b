import { useEffect, useRef } from "react";
import { session } from "@/api/session";

const key = "muster-submit-drafts";
/** Drafts that are kept at most; the one that was not written for longest goes first. */
const most = 20;

/** The drafts by what they began with, the last written one last. */
function read(): Map<string, string> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    const pairs = Array.isArray(stored) ? stored.filter((p): p is [string, string] => Array.isArray(p) && p.length === 2 && p.every((s) => typeof s === "string")) : [];
    return new Map(pairs);
  } catch {
    return new Map();
  }
}

/** Writes the drafts. A full storage costs the oldest ones, a forbidden one all. */
function write(drafts: Map<string, string>) {
  let pairs = [...drafts].slice(-most);
  while (pairs.length > 0) {
    try {
      localStorage.setItem(key, JSON.stringify(pairs));
      return;
    } catch {
      pairs = pairs.slice(1);
    }
  }
  localStorage.removeItem(key);
}

/** The specs that were being written, one for each job, task or example that they began with: they outlive the page and an expired session. */
export const draft = {
  load: (of: string): string | undefined => read().get(of),
  save(of: string, text: string) {
    const drafts = read();
    drafts.delete(of);
    write(drafts.set(of, text));
  },
  /** Drops one draft, or all. */
  drop(of?: string) {
    const drafts = of === undefined ? new Map<string, string>() : read();
    if (of !== undefined) drafts.delete(of);
    write(drafts);
  },
};

/**
 * Keeps what is written as a draft: when the writer pauses, and what was written last when the page is left. A text as it was at the
 * beginning needs none. Returns what ends the draft.
 */
export function useDraft(of: string, original: string, initial: string, text: string, settled: string): () => void {
  const kept = useRef(initial);
  const ended = useRef(false);
  const latest = useRef(text);
  useEffect(() => {
    latest.current = text;
  });
  const keep = useRef((t: string) => {
    if (ended.current || t === kept.current || session.get().status === "out") return;
    kept.current = t;
    if (t === original) draft.drop(of);
    else draft.save(of, t);
  });
  useEffect(() => keep.current(settled), [settled]);
  useEffect(() => {
    const save = keep.current;
    const leave = () => save(latest.current);
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);
  return () => {
    ended.current = true;
    draft.drop(of);
  };
}
