import { useEffect, useRef, useSyncExternalStore } from "react";
import { apiFetch } from "./client";
import { ApiError, messageOf } from "./error";
import { EventParser, type ServerEvent } from "./sse";

/**
 * One change, as GET /api/v1/events sends it: the state of its subject after it. That of a task always has the complete detail, with the newest
 * value of each metric that was ever reported.
 */
export interface LiveEvent {
  readonly epoch: string;
  readonly seq: number;
  readonly type: "job" | "task" | "worker";
  readonly at: string;
  readonly job?: number;
  readonly task?: string;
  readonly worker?: string;
  readonly state?: string;
  readonly why?: string;
  readonly detail?: {
    readonly attempt?: number;
    readonly reason?: string;
    readonly progress?: number;
    readonly step?: string;
    readonly metrics?: Readonly<Record<string, number>>;
  };
}

/** What subscribers get, at most once a frame. */
export interface Batch {
  /** The newest event of each subject, in order of arrival. */
  readonly events: readonly LiveEvent[];
  /** Events were missed: read the state again. */
  readonly resync: boolean;
}

export interface Connection {
  /** "paused": the tab is hidden, and catches up when it is visible again. */
  readonly status: "connecting" | "open" | "lost" | "paused";
  /** When the connection was lost or opened, in milliseconds. */
  readonly since: number;
  /** Why it was lost. */
  readonly message?: string;
}

/** Subjects with an event in one batch at most; more make it a resync, so that memory stays bounded. */
export const maxPending = 20_000;
/** The server says something every 15 s; silence of this many milliseconds means that the connection is dead. */
const silence = 40_000;
/** A tab that was hidden for this many milliseconds gives its connection back: browsers allow six to one server by HTTP/1.1. */
export const hiddenFor = 10_000;
const firstPause = 500;
const longestPause = 15_000;
/** Milliseconds of work between two frames. */
const slice = 8;

type Subscriber = (batch: Batch) => void;

/** Collects events until the next frame: the newest of each subject. Exported for its tests. */
export class Coalescer {
  private pending = new Map<string, LiveEvent>();
  private resync = false;

  add(event: LiveEvent) {
    const key = event.task ? `t${event.task}` : event.type === "worker" ? `w${event.worker ?? ""}` : `j${event.job ?? ""}`;
    const before = this.pending.get(key);
    if (before) this.pending.delete(key); // keeps the order of arrival
    else if (this.pending.size >= maxPending) {
      this.missed();
      return;
    }
    this.pending.set(key, event);
  }

  missed() {
    this.pending.clear();
    this.resync = true;
  }

  get empty() {
    return this.pending.size === 0 && !this.resync;
  }

  take(): Batch {
    const batch = { events: [...this.pending.values()], resync: this.resync };
    this.pending = new Map();
    this.resync = false;
    return batch;
  }
}

/** The one stream of the page. Exported for its tests. */
export class LiveStream {
  private readonly subscribers = new Set<Subscriber>();
  private readonly listeners = new Set<() => void>();
  private readonly pending = new Coalescer();
  private connection: Connection = { status: "connecting", since: Date.now() };
  private running: AbortController | undefined;
  private current: AbortController | undefined;
  private wake: (() => void) | undefined;
  private last = "";
  private heard = 0;
  private scheduled = false;

  /** Connects and stays connected until stop. A tab that is opened in the background connects when it is shown. */
  start() {
    if (this.running) return;
    const running = new AbortController();
    this.running = running;
    this.set({ status: document.hidden ? "paused" : "connecting", since: Date.now() });
    let hide: ReturnType<typeof setTimeout> | undefined;
    const visibility = () => {
      clearTimeout(hide);
      if (document.hidden) {
        hide = setTimeout(() => {
          this.set({ status: "paused", since: Date.now() });
          this.current?.abort();
        }, hiddenFor);
        return;
      }
      // A machine that slept has a connection that looks open and is dead.
      if (this.connection.status === "open" && performance.now() - this.heard > silence) this.current?.abort();
      this.wake?.();
    };
    const online = () => this.wake?.();
    const watchdog = setInterval(() => {
      if (this.connection.status === "open" && performance.now() - this.heard > silence) this.current?.abort();
    }, 5_000);
    document.addEventListener("visibilitychange", visibility);
    window.addEventListener("online", online);
    running.signal.addEventListener("abort", () => {
      clearTimeout(hide);
      clearInterval(watchdog);
      document.removeEventListener("visibilitychange", visibility);
      window.removeEventListener("online", online);
    });
    void this.run(running.signal);
  }

  stop() {
    this.running?.abort();
    this.current?.abort();
    this.wake?.();
    this.running = undefined;
  }

  /** Calls back with every batch until the returned function is called. */
  subscribe(subscriber: Subscriber): () => void {
    this.subscribers.add(subscriber);
    return () => void this.subscribers.delete(subscriber);
  }

  readonly onConnection = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  readonly getConnection = () => this.connection;

  /** Tries to connect at once. */
  readonly retry = () => this.wake?.();

  private async run(signal: AbortSignal) {
    let failures = 0;
    while (!signal.aborted) {
      if (document.hidden && this.connection.status === "paused") {
        await this.sleep(2 ** 31 - 1);
        continue;
      }
      let message = "";
      try {
        await this.connect(signal, () => (failures = 0));
      } catch (e) {
        message = messageOf(e);
        if (e instanceof ApiError && e.status === 403) message = "This key may not watch events";
      }
      // stop() or the loss of visibility ended it.
      if (signal.aborted || this.getConnection().status === "paused") continue;
      failures++;
      const since = this.connection.status === "lost" ? this.connection.since : Date.now();
      // One broken connection that is replaced at once is no loss worth a banner.
      this.set({ status: failures > 1 ? "lost" : "connecting", since, ...(message && { message }) });
      await this.sleep(Math.min(longestPause, firstPause * 2 ** (failures - 1)) * (0.5 + Math.random() / 2));
    }
  }

  private async connect(signal: AbortSignal, opened: () => void) {
    const current = new AbortController();
    this.current = current;
    const response = await apiFetch("/api/v1/events", {
      headers: { Accept: "text/event-stream", ...(this.last && { "Last-Event-ID": this.last }) },
      cache: "no-store",
      signal: AbortSignal.any([current.signal, signal]),
    });
    if (!response.body) throw new Error("The browser cannot read streams");
    opened();
    this.heard = performance.now();
    this.set({ status: "open", since: Date.now() });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    let began = performance.now();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.heard = performance.now();
      for (const event of parser.push(value)) {
        this.receive(event);
        if (performance.now() - began > slice) {
          await frame();
          began = performance.now();
        }
      }
      if (parser.lastId) this.last = parser.lastId;
    }
  }

  private receive(event: ServerEvent) {
    if (event.type === "resync") this.pending.missed();
    else {
      try {
        this.pending.add(JSON.parse(event.data) as LiveEvent);
      } catch {
        this.pending.missed(); // an event that cannot be read is one that was missed
      }
    }
    this.schedule();
  }

  private schedule() {
    if (this.scheduled || this.pending.empty) return;
    this.scheduled = true;
    void frame().then(() => {
      this.scheduled = false;
      const batch = this.pending.take();
      for (const s of this.subscribers) {
        try {
          s(batch);
        } catch (e) {
          reportError(e);
        }
      }
    });
  }

  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        if (!document.hidden && this.connection.status === "paused") this.set({ status: "connecting", since: Date.now() });
        resolve();
      };
    });
  }

  private set(connection: Connection) {
    this.connection = connection;
    for (const l of this.listeners) l();
  }
}

/** The next frame; a hidden tab has none, and takes a timer. */
function frame(): Promise<void> {
  return new Promise((resolve) => {
    if (document.hidden) {
      setTimeout(resolve, 250);
      return;
    }
    // A tab that is hidden after this gets its frame late: the timer bounds how late.
    let done = false;
    const once = () => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(once, 500);
    requestAnimationFrame(once);
  });
}

export const live = new LiveStream();

/** Calls back with every batch of events while the component is shown. */
export function useLive(callback: Subscriber): void {
  const latest = useRef(callback);
  useEffect(() => {
    latest.current = callback;
  });
  useEffect(() => live.subscribe((batch) => latest.current(batch)), []);
}

export function useConnection(): Connection {
  return useSyncExternalStore(live.onConnection, live.getConnection);
}
