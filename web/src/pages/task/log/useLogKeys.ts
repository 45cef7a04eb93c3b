import { useEffect, useRef } from "react";

export type LogKeys = Readonly<Record<string, () => void>>;

/** Milliseconds in which a key after g is one of the dashboard's shortcuts. */
const chord = 1_200;

/**
 * Keys of the log, wherever the focus is but in a field or a dialog. In the log itself g is a key of its own; elsewhere
 * it begins the shortcuts that open pages.
 */
export function useLogKeys(keys: LogKeys, panel: { readonly current: HTMLElement | null }): void {
  const latest = useRef(keys);
  useEffect(() => {
    latest.current = keys;
  });
  useEffect(() => {
    let pressed = -chord;
    const onKey = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("[role=dialog]")) return;
      const target = e.target instanceof HTMLElement ? e.target : undefined;
      if (target && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))) return;
      const inside = target !== undefined && panel.current?.contains(target) === true;
      if (e.key === "g" && !inside) {
        pressed = performance.now();
        return;
      }
      if (performance.now() - pressed < chord) return;
      const action = latest.current[e.key];
      if (!action) return;
      e.preventDefault();
      e.stopPropagation();
      action();
    };
    window.addEventListener("keydown", onKey, { capture: true });
    return () => window.removeEventListener("keydown", onKey, { capture: true });
  }, [panel]);
}
