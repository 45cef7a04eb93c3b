import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { navItems } from "./nav";

/** Every shortcut of the dashboard, for the help. */
export const shortcuts: readonly { keys: readonly string[]; does: string }[] = [
  { keys: ["Ctrl", "K"], does: "Search jobs, tasks, workers and actions" },
  { keys: ["/"], does: "Focus the search of the page, else open the search" },
  { keys: ["?"], does: "Show this help" },
  ...navItems.map((n) => ({ keys: ["g", n.key], does: `Open ${n.label}` })),
  { keys: ["↑", "↓"], does: "Move in a table" },
  { keys: ["Enter"], does: "Open the row" },
  { keys: ["Space"], does: "Select the row" },
];

/** How long g waits for its second key, in milliseconds. */
const chord = 1_200;

/** Keys that work everywhere but where somebody types. The search of a page has the attribute data-search. */
export function useShortcuts({ openPalette, openHelp }: { openPalette: () => void; openHelp: () => void }): void {
  const navigate = useNavigate();
  const handlers = useRef({ openPalette, openHelp });
  useEffect(() => {
    handlers.current = { openPalette, openHelp };
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
        const item = navItems.find((n) => n.key === e.key);
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
