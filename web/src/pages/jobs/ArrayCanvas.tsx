import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useImperativeHandle, useMemo, useRef, useState, type KeyboardEvent, type PointerEvent, type Ref } from "react";
import css from "./grid.module.css";
import { GridPainter } from "./GridPainter";
import { fit, moveBy } from "./model/grid";

export interface ArrayHandle {
  /** These elements have another state now. */
  touch: (elements: readonly number[]) => void;
  zoom: (factor: number) => void;
  all: () => void;
  reveal: (element: number) => void;
}

interface Props {
  readonly ref: Ref<ArrayHandle>;
  /** Changed in place; touch says where. */
  readonly states: Uint8Array;
  readonly shown: ReadonlySet<number> | undefined;
  readonly cursor: number | undefined;
  readonly onCursor: (element: number | undefined) => void;
  readonly onHover: (element: number | undefined) => void;
  readonly onOpen: (element: number) => void;
  readonly onJump: (step: 1 | -1) => void;
  readonly label: string;
}

const maxHeight = 800;

/** Draws states as cells on a canvas, which shows all of them or a part. */
export function ArrayCanvas({ ref, states, shown, cursor, onCursor, onHover, onOpen, onJump, label }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light");
  const [width, setWidth] = useState(0);
  const [zoomed, setZoomed] = useState(false);
  const painter = useRef<GridPainter | null>(null);
  const geometry = useMemo(() => fit(states.length, Math.max(16, width), maxHeight), [states.length, width]);

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const element = canvas.current;
    if (!element || width === 0) return;
    const p = new GridPainter(element, geometry.plane, { width, height: geometry.height }, geometry.scale, setZoomed);
    painter.current = p;
    setZoomed(false);
    return () => p.stop();
  }, [geometry, width]);
  useEffect(() => {
    painter.current?.setData(states, shown);
  }, [states, shown, scheme, geometry, width]);
  useEffect(() => {
    painter.current?.setCursor(cursor);
  }, [cursor, geometry, width]);

  useImperativeHandle(ref, () => ({
    touch: (elements) => painter.current?.touch(elements),
    zoom: (factor) => painter.current?.zoom(factor),
    all: () => painter.current?.all(),
    reveal: (element) => painter.current?.reveal(element),
  }));

  // React listens to wheels passively, but a zoom must keep the page where it is.
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const wheel = (e: WheelEvent) => {
      const p = painter.current;
      if (!p) return;
      if (e.ctrlKey || e.metaKey) {
        e.preventDefault();
        p.zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0025)), e.offsetX, e.offsetY);
      } else if (p.pan(-e.deltaX, -e.deltaY)) e.preventDefault();
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);

  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const drag = useRef({ moved: 0 });
  const down = (e: PointerEvent<HTMLCanvasElement>) => {
    pointers.current.set(e.pointerId, { x: e.nativeEvent.offsetX, y: e.nativeEvent.offsetY });
    if (pointers.current.size === 1) drag.current.moved = 0;
    if (zoomed || e.pointerType !== "touch") e.currentTarget.setPointerCapture(e.pointerId);
  };
  const move = (e: PointerEvent<HTMLCanvasElement>) => {
    const p = painter.current;
    if (!p) return;
    const { offsetX: x, offsetY: y } = e.nativeEvent;
    const before = pointers.current.get(e.pointerId);
    if (!before) {
      onHover(p.at(x, y));
      return;
    }
    const others = [...pointers.current].filter(([id]) => id !== e.pointerId);
    const other = others[0]?.[1];
    if (other) {
      const d0 = Math.hypot(before.x - other.x, before.y - other.y);
      const d1 = Math.hypot(x - other.x, y - other.y);
      if (d0 > 4) p.zoom(d1 / d0, (x + other.x) / 2, (y + other.y) / 2);
      drag.current.moved = 99;
    } else {
      drag.current.moved += Math.abs(x - before.x) + Math.abs(y - before.y);
      if (drag.current.moved > 4) {
        p.pan(x - before.x, y - before.y);
        e.currentTarget.dataset["dragging"] = "";
      }
    }
    pointers.current.set(e.pointerId, { x, y });
  };
  const up = (e: PointerEvent<HTMLCanvasElement>) => {
    const known = pointers.current.delete(e.pointerId);
    delete e.currentTarget.dataset["dragging"];
    const i = painter.current?.at(e.nativeEvent.offsetX, e.nativeEvent.offsetY);
    if (!known || e.type !== "pointerup" || drag.current.moved > 4 || e.button !== 0 || i === undefined) return;
    // A finger cannot hit a cell of few pixels: it zooms in there first.
    const p = painter.current;
    if (p && p.scale < 6 && e.pointerType === "touch") p.zoom(12 / p.scale, e.nativeEvent.offsetX, e.nativeEvent.offsetY);
    else onOpen(i);
  };
  const key = (e: KeyboardEvent) => {
    const p = painter.current;
    if (!p || e.ctrlKey || e.metaKey || e.altKey) return;
    const to = cursor === undefined ? (e.key.startsWith("Arrow") ? 0 : e.key === "Home" ? 0 : e.key === "End" ? states.length - 1 : undefined) : moveBy(e.key, cursor, geometry.plane, p.pageRows);
    if (to !== undefined) {
      onCursor(to);
      p.reveal(to);
    } else if (e.key === "Enter" && cursor !== undefined) onOpen(cursor);
    else if (e.key === "+" || e.key === "=") p.zoom(1.6);
    else if (e.key === "-") p.zoom(1 / 1.6);
    else if (e.key === "0") p.all();
    else if (e.key === "n" || e.key === "N") onJump(e.key === "n" ? 1 : -1);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  return (
    <div className={css.frame}>
      <div ref={host} className={css.host} style={{ height: geometry.height }}>
        {/* Its cells cannot be elements: the canvas takes the keys, and the page says where the cursor is. */}
        {/* eslint-disable-next-line jsx-a11y/no-interactive-element-to-noninteractive-role */}
        <canvas role="application"
          ref={canvas}
          className={css.canvas}
          data-zoomed={zoomed || undefined}
          data-testid="array"
          tabIndex={0}
          aria-label={label}
          aria-roledescription="grid of elements"
          onPointerDown={down}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={up}
          onPointerLeave={() => onHover(undefined)}
          onKeyDown={key}
        />
      </div>
    </div>
  );
}
