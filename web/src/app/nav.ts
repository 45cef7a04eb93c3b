import { ChartNoAxesCombined, ListChecks, Send, Server, Settings, type LucideIcon } from "lucide-react";
import type { Verb } from "@/api/session";

export interface NavItem {
  readonly to: "/" | "/jobs" | "/workers" | "/submit" | "/settings";
  readonly label: string;
  readonly icon: LucideIcon;
  /** The key after g. */
  readonly key: string;
  /** Who may not do this is not offered the page. */
  readonly verb?: Verb;
}

export const navItems: readonly NavItem[] = [
  { to: "/", label: "Overview", icon: ChartNoAxesCombined, key: "o", verb: "see workers" },
  { to: "/jobs", label: "Jobs", icon: ListChecks, key: "j", verb: "read jobs" },
  { to: "/workers", label: "Workers", icon: Server, key: "w", verb: "see workers" },
  { to: "/submit", label: "Submit", icon: Send, key: "s", verb: "submit jobs" },
  { to: "/settings", label: "Settings", icon: Settings, key: "t" },
];
