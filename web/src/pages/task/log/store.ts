import { isAbort } from "./abort";
import type { LogWindow } from "@/api/types";
import { type Bounds, LogBuffer, usualBounds } from "./buffer";

export interface WindowAt {
  readonly offset?: number;
  readonly direction: "forward" | "backward";
  readonly bytes: number;
}

export type ReadWindow = (at: WindowAt, signal: AbortSignal) => Promise<LogWindow>;

/** How much one request asks for. */
const page = 256 * 1024;
/** A follower that is this far behind skips to the end. */
const farBehind = 2 * 1024 * 1024;
/** Milliseconds between two looks for more: while output comes, and at most. */
const quick = 150;
const slow = 1_500;

/** Reads a log around one place: keeps a bounded part of it, and what comes at its end. */
export class LogStore {
  readonly buffer: LogBuffer;
  following = false;
  loading = false;
  error: unknown;
  /** The place that the viewer shall show, after a jump: an offset, or the end. */
  target: number | "end" | undefined;
  private readonly listeners = new Set<() => void>();
  private version = 0;
  private generation = new AbortController();
  private before = false;
  private after = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private pause = quick;
  private stopped = true;
  /** Where the end was when following paused: what is behind it is new. */
  private seen = 0;
  private fresh = 0;

  constructor(
    private readonly read: ReadWindow,
    bounds: Bounds = usualBounds,
  ) {
    this.buffer = new LogBuffer(bounds);
  }

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  readonly getVersion = () => this.version;

  /** The state of everything around the lines: it does not change when lines arrive. */
  readonly getPhase = () => `${this.loading ? "loading" : ""} ${this.following ? "following" : ""} ${this.error === undefined ? "" : "error"} ${this.buffer.lines.length === 0 ? "empty" : ""}`;

  /** Shows a position of the log, or its end, and polls for more until stop. */
  start(at: number | "end") {
    this.stopped = false;
    void (at === "end" ? this.follow() : this.goto(at));
  }

  stop() {
    this.stopped = true;
    this.generation.abort();
    clearTimeout(this.timer);
  }

  /** Lines that arrived since following paused, and bytes whose lines are unknown. */
  get unseen(): { lines: number; bytes: number } {
    return this.following ? { lines: 0, bytes: 0 } : { lines: this.fresh, bytes: Math.max(0, this.buffer.size - Math.max(this.seen, this.buffer.last)) };
  }

  /** Shows the line that holds an offset. */
  async goto(offset: number): Promise<void> {
    this.leaveEnd();
    if (this.buffer.has(offset)) {
      this.target = offset;
      this.changed();
      return;
    }
    await this.load(async (signal) => {
      const w = await this.read({ offset, direction: "forward", bytes: page }, signal);
      this.buffer.reset(w);
      // Load some lines before it as context; near the end these fill the view.
      if (w.first > 0) this.buffer.prepend(await this.read({ offset: w.first, direction: "backward", bytes: page / 4 }, signal));
      this.target = Math.min(offset, this.buffer.last);
    });
  }

  /** Shows the end and stays there. */
  async follow(): Promise<void> {
    this.following = true;
    this.fresh = 0;
    const near = this.buffer.lines.length > 0 && this.buffer.atEnd;
    if (near) {
      this.target = "end";
      this.changed();
      this.schedule(0);
      return;
    }
    await this.load(async (signal) => {
      this.buffer.reset(await this.read({ direction: "backward", bytes: page }, signal));
      this.target = "end";
    });
  }

  /** The reader left the end: what comes is counted and not shown. */
  leaveEnd() {
    if (!this.following) return;
    this.following = false;
    this.seen = this.buffer.size;
    this.fresh = 0;
    this.changed();
  }

  /** Loads what is before the part. */
  async loadBefore(): Promise<void> {
    if (this.before || this.loading || this.stopped || this.buffer.first <= 0) return;
    this.before = true;
    await this.attempt(async (signal) => {
      const w = await this.read({ offset: this.buffer.first, direction: "backward", bytes: page }, signal);
      if (!signal.aborted) this.buffer.prepend(w);
    });
    this.before = false;
  }

  /** Loads what is behind the part. */
  async loadAfter(): Promise<void> {
    if (this.after || this.loading || this.stopped || this.buffer.done) return;
    this.after = true;
    const lines = this.buffer.lines.length;
    const last = this.buffer.last;
    const first = this.buffer.first;
    await this.attempt(async (signal) => {
      const w = await this.read({ offset: last, direction: "forward", bytes: page }, signal);
      if (signal.aborted) return;
      if (this.following && w.size - w.last > farBehind) {
        this.buffer.reset(await this.read({ direction: "backward", bytes: page }, signal));
      } else this.buffer.append(w);
      if (!this.following && last >= this.seen && this.seen > 0 && first === this.buffer.first) this.fresh += this.buffer.lines.length - lines;
    });
    this.after = false;
    this.pause = this.buffer.last > last ? quick : Math.min(slow, this.pause * 1.5);
  }

  /** Tries again at once, for example after an error or when the task says something. */
  nudge() {
    this.pause = quick;
    this.schedule(0);
  }

  taken() {
    this.target = undefined;
  }

  // Replaces the part: what was under way for the former one is given up.
  private async load(work: (signal: AbortSignal) => Promise<void>) {
    this.generation.abort();
    this.generation = new AbortController();
    this.before = this.after = false;
    this.loading = true;
    this.changed();
    const { signal } = this.generation;
    await this.attempt(work);
    if (signal !== this.generation.signal) return; // another jump came
    this.loading = false;
    this.changed();
    this.pause = quick;
    this.schedule(quick);
  }

  private async attempt(work: (signal: AbortSignal) => Promise<void>) {
    const { signal } = this.generation;
    try {
      await work(signal);
      if (signal.aborted) return;
      this.error = undefined;
      this.changed();
    } catch (e) {
      if (signal.aborted || isAbort(e)) return;
      this.error = e;
      this.changed();
    }
  }

  // Looks for more at the end: all of it when it is followed or in the part, else only the size.
  private schedule(ms: number) {
    clearTimeout(this.timer);
    if (this.stopped || this.buffer.done) return;
    this.timer = setTimeout(() => void this.look(), document.hidden ? Math.max(ms, 5_000) : ms);
  }

  private async look() {
    const behind = this.buffer.last < this.buffer.size;
    const full = !this.following && this.fresh > this.buffer.bounds.lines / 2;
    if (!this.loading && (this.following || !behind) && !full) await this.loadAfter();
    else if (!this.loading) {
      const size = this.buffer.size;
      await this.attempt(async (signal) => {
        const w = await this.read({ offset: Math.max(0, size), direction: "forward", bytes: 1 }, signal);
        this.buffer.size = Math.max(this.buffer.size, w.size);
      });
      this.pause = Math.min(slow, this.pause * 1.5);
    }
    this.schedule(this.error ? slow * 2 : this.pause);
  }

  private changed() {
    this.version++;
    for (const l of this.listeners) l();
  }
}
