import { Button } from "@mantine/core";
import { ArrowDown } from "lucide-react";
import { useCallback, useEffect, useImperativeHandle, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore, type KeyboardEvent, type PointerEvent, type Ref } from "react";
import { bytes, percent, plural } from "@/ui/format";
import type { LogQuery } from "../api";
import { layOut, lineAt } from "./layout";
import css from "./log.module.css";
import { gutterColumns, LogLine, rowHeight } from "./LogLines";
import type { LogStore } from "./store";

export interface LogScrollerHandle {
  /** The offset of the line at the top of the view. */
  top: () => number;
  focus: () => void;
}

export interface LogScrollerProps {
  readonly store: LogStore;
  readonly wrap: boolean;
  readonly times: boolean;
  readonly live: boolean;
  /** The line that is marked. */
  readonly current: number | undefined;
  readonly query: LogQuery | undefined;
  /** Offsets that are marked in the rail. */
  readonly ticks: readonly number[];
  readonly onPick: (offset: number) => void;
  readonly ref?: Ref<LogScrollerHandle>;
}

/** How near to its end, in pixels, the view must be before more is loaded. */
const ahead = 3_000;

/**
 * Shows the lines of a store. Its own scroller moves within the loaded lines; the rail represents
 * the whole log, by bytes, so that a gigabyte is scrolled without being loaded.
 */
export function LogScroller({ store, wrap, times, live, current, query, ticks, onPick, ref }: LogScrollerProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const [view, setView] = useState({ top: 0, height: 600, width: 800 });
  const [char, setChar] = useState(7.5);
  const version = useSyncExternalStore(store.subscribe, store.getVersion);
  const lines = store.buffer.lines;
  const shown = store.buffer.version;

  const columns = wrap ? Math.max(20, Math.floor((view.width - 8 - 2 - 16) / char) - gutterColumns(times)) : undefined;
  // eslint-disable-next-line react-hooks/exhaustive-deps -- the lines change in place, and their version with them
  const layout = useMemo(() => layOut(lines, columns), [lines, shown, columns]);
  const height = (layout.rows[lines.length] ?? 0) * rowHeight;

  // What is at the top of the view stays there when lines are added or dropped before it.
  const anchor = useRef<{ offset: number; part: number; delta: number }>(undefined);
  const remember = useCallback(() => {
    const element = scroller.current;
    if (!element || lines.length === 0) return;
    const i = lineAt(layout, Math.floor(element.scrollTop / rowHeight));
    const line = lines[i];
    if (line) anchor.current = { offset: line.offset, part: line.part, delta: element.scrollTop - (layout.rows[i] ?? 0) * rowHeight };
  }, [lines, layout]);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const target = store.target;
    if (target !== undefined && lines.length > 0) {
      store.taken();
      if (target !== "end") {
        const i = store.buffer.indexOf(target);
        element.scrollTop = Math.max(0, (layout.rows[i] ?? 0) * rowHeight - element.clientHeight * 0.3);
      } else element.scrollTop = element.scrollHeight;
    } else if (store.following) element.scrollTop = element.scrollHeight;
    else if (anchor.current) {
      const a = anchor.current;
      let i = store.buffer.indexOf(a.offset);
      while (lines[i]?.offset === a.offset && (lines[i]?.part ?? 0) < a.part && lines[i + 1]?.offset === a.offset) i++;
      const top = (layout.rows[i] ?? 0) * rowHeight + (lines[i]?.offset === a.offset ? a.delta : 0);
      if (Math.abs(element.scrollTop - top) > 1) element.scrollTop = top;
    }
    remember();
    setView((v) => (v.top === element.scrollTop ? v : { ...v, top: element.scrollTop }));
  }, [version, layout, lines, store, remember]);

  useEffect(() => {
    const element = scroller.current;
    const measure = probe.current;
    if (!element || !measure) return;
    const observer = new ResizeObserver(() => {
      setChar(measure.getBoundingClientRect().width / 100 || 7.5);
      setView((v) => ({ ...v, height: element.clientHeight, width: element.clientWidth }));
    });
    observer.observe(element);
    observer.observe(measure);
    return () => observer.disconnect();
  }, []);

  // More is loaded before the end of what is loaded comes into view.
  useEffect(() => {
    if (store.loading || store.error) return;
    if (view.top < ahead) void store.loadBefore();
    if (!store.following && height - view.top - view.height < ahead && !store.buffer.atEnd) void store.loadAfter();
  }, [store, view, height, version]);

  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    const gap = element.scrollHeight - element.clientHeight - element.scrollTop;
    const down = element.scrollTop > view.top;
    if (store.following && live && gap > 2 * rowHeight) store.leaveEnd();
    else if (!store.following && live && down && gap < 4 && store.buffer.atEnd) void store.follow();
    remember();
    setView((v) => ({ ...v, top: element.scrollTop }));
  };

  const from = Math.max(0, lineAt(layout, Math.floor(view.top / rowHeight)) - 12);
  const to = Math.min(lines.length, lineAt(layout, Math.ceil((view.top + view.height) / rowHeight)) + 13);
  const first = lines[lineAt(layout, Math.floor(view.top / rowHeight))];
  const last = lines[lineAt(layout, Math.floor((view.top + view.height) / rowHeight))];

  useImperativeHandle(ref, () => ({ top: () => first?.offset ?? 0, focus: () => scroller.current?.focus() }), [first]);

  const unseen = store.unseen;
  const atBottom = height - view.top - view.height < 4 && store.buffer.atEnd;
  const rendered = [];
  for (let i = from; i < to; i++) {
    const line = lines[i];
    if (!line) continue;
    const top = (layout.rows[i] ?? 0) * rowHeight;
    rendered.push(
      <LogLine key={`${line.offset}.${line.part}`} line={line} top={top} rows={(layout.rows[i + 1] ?? 0) - (layout.rows[i] ?? 0)} wrap={columns} times={times} current={line.offset === current} query={query} onPick={onPick} />,
    );
  }
  return (
    <>
      {/* It scrolls, so the keyboard must reach it. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <div ref={scroller} id="log-lines" className={css.scroller} onScroll={onScroll} tabIndex={0} role="region" aria-label="Output of the task" data-testid="log">
        <span ref={probe} className={css.probe} aria-hidden>
          {"0".repeat(100)}
        </span>
        <div className={css.lines} style={{ height, width: columns ? undefined : `calc(${layout.widest + gutterColumns(times)}ch + 26px)` }}>
          {rendered}
        </div>
      </div>
      <Rail store={store} first={first?.offset ?? 0} last={atBottom ? store.buffer.size : (last?.offset ?? 0)} ticks={ticks} height={view.height} />
      {live && !store.following && (unseen.lines > 0 || unseen.bytes > 0) && (
        <Button className={css.pill} size="compact-sm" radius="xl" leftSection={<ArrowDown size={14} aria-hidden />} onClick={() => void store.follow()}>
          {unseen.bytes > 0 ? `${bytes(unseen.bytes)} of new output` : plural(unseen.lines, "new line")}
        </Button>
      )}
    </>
  );
}

function Rail({ store, first, last, ticks, height }: { store: LogStore; first: number; last: number; ticks: readonly number[]; height: number }) {
  const [drag, setDrag] = useState<{ grab: number; top: number }>();
  const pending = useRef<ReturnType<typeof setTimeout>>(undefined);
  const size = Math.max(1, store.buffer.size);
  const length = Math.max(28, Math.min(height, ((last - first) / size) * height));
  const room = Math.max(1, height - length);
  // The thumb is longer than the part that it represents, so it moves along the rest of the log.
  const span = Math.max(1, size - (last - first));
  const top = drag?.top ?? Math.min(room, (first / span) * room);
  const places = useMemo(() => [...new Set(ticks.map((t) => Math.round((t / size) * (height - 2))))], [ticks, size, height]);

  const seek = (at: number, now: boolean) => {
    clearTimeout(pending.current);
    const go = () => void (at >= room - 0.5 ? store.follow() : store.goto(Math.round((at / room) * span)));
    if (now) go();
    else pending.current = setTimeout(go, 90);
  };
  const onDown = (e: PointerEvent<HTMLDivElement>) => {
    if (e.button !== 0) return;
    e.preventDefault();
    const y = e.clientY - e.currentTarget.getBoundingClientRect().top;
    const inside = y >= top && y <= top + length;
    const grab = inside ? y - top : length / 2;
    const to = Math.max(0, Math.min(room, y - grab));
    e.currentTarget.setPointerCapture(e.pointerId);
    setDrag({ grab, top: to });
    if (!inside) seek(to, true);
  };
  const onMove = (e: PointerEvent<HTMLDivElement>) => {
    if (!drag) return;
    const to = Math.max(0, Math.min(room, e.clientY - e.currentTarget.getBoundingClientRect().top - drag.grab));
    setDrag({ ...drag, top: to });
    seek(to, false);
  };
  const onUp = () => {
    if (!drag) return;
    seek(drag.top, true);
    setDrag(undefined);
  };
  const onKey = (e: KeyboardEvent) => {
    const step = { ArrowUp: -0.01, ArrowDown: 0.01, PageUp: -0.1, PageDown: 0.1 }[e.key];
    if (step !== undefined) seek(Math.max(0, Math.min(room, top + step * room)), true);
    else if (e.key === "Home") void store.goto(0);
    else if (e.key === "End") void store.follow();
    else return;
    e.preventDefault();
  };
  useEffect(() => () => clearTimeout(pending.current), []);
  return (
    <div
      className={css.rail}
      role="scrollbar"
      aria-controls="log-lines"
      aria-orientation="vertical"
      aria-label="Place in the whole log"
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round((top / room) * 100)}
      aria-valuetext={`${percent(top / room)} of ${bytes(store.buffer.size)}`}
      tabIndex={0}
      data-dragging={drag ? "" : undefined}
      title={`${bytes(Math.round((top / room) * span))} of ${bytes(store.buffer.size)}`}
      onPointerDown={onDown}
      onPointerMove={onMove}
      onPointerUp={onUp}
      onPointerCancel={onUp}
      onKeyDown={onKey}
    >
      {places.map((p) => (
        <span key={p} className={css.tick} style={{ top: p }} />
      ))}
      <span className={css.thumb} style={{ top, height: length }} />
    </div>
  );
}
