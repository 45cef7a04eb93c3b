import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import type { NavItem } from "./nav";

/** The shortcuts of the dashboard, with those of the pages that may be opened, for the help. */
export const shortcutsOf = (items: readonly NavItem[]): readonly { keys: readonly string[]; does: string }[] => [
  { keys: ["Ctrl", "K"], does: "Search jobs, tasks, workers and actions" },
  { keys: ["/"], does: "Focus the search of the page, else open the search" },
  { keys: ["?"], does: "Show this help" },
  ...items.map((n) => ({ keys: ["g", n.key], does: `Open ${n.label}` })),
  { keys: ["↑", "↓"], does: "Move in a table" },
  { keys: ["Enter"], does: "Open the row" },
  { keys: ["Space"], does: "Select the row" },
];

/** How long g waits for its second key, in milliseconds. */
const chord = 1_200;

/** Keys that work everywhere but where somebody types. The search of a page has the attribute data-search. */
export function useShortcuts(options: { items: readonly NavItem[]; openPalette: () => void; openHelp: () => void }): void {
  const navigate = useNavigate();
  const handlers = useRef(options);
  useEffect(() => {
    handlers.current = options;
  });
  useEffect(() => {
    let pressed = 0;
    const onKey = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() === "k" && (e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey) {
        e.preventDefault();
        handlers.current.openPalette();
        return;
      }
      if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || typing(e.target) || document.querySelector("[role=dialog]")) return;
      const second = performance.now() - pressed < chord;
      pressed = 0;
      if (second) {
        const item = handlers.current.items.find((n) => n.key === e.key);
        if (item) {
          e.preventDefault();
          void navigate({ to: item.to });
          return;
        }
      }
      if (e.key === "g") pressed = performance.now();
      else if (e.key === "?") handlers.current.openHelp();
      else if (e.key === "/") {
        e.preventDefault();
        const search = document.querySelector<HTMLInputElement>("[data-search]");
        if (search) search.focus();
        else handlers.current.openPalette();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [navigate]);
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
