import { ChartNoAxesCombined, ListChecks, Send, Server, Settings, type LucideIcon } from "lucide-react";
import { can, type Me, type Verb } from "@/api/session";

export interface NavItem {
  readonly to: "/" | "/jobs" | "/workers" | "/submit" | "/settings";
  readonly label: string;
  readonly icon: LucideIcon;
  /** The key after g. */
  readonly key: string;
  /** Who may not do this is not offered the page. */
  readonly verb?: Verb;
}

const items: readonly NavItem[] = [
  { to: "/", label: "Overview", icon: ChartNoAxesCombined, key: "o", verb: "see workers" },
  { to: "/jobs", label: "Jobs", icon: ListChecks, key: "j", verb: "read jobs" },
  { to: "/workers", label: "Workers", icon: Server, key: "w", verb: "see workers" },
  { to: "/submit", label: "Submit", icon: Send, key: "s", verb: "submit jobs" },
  { to: "/settings", label: "Settings", icon: Settings, key: "t" },
];

/** The pages that a key may open. What that of a shared link may see is one job. */
export const pagesOf = (me: Me | undefined): readonly NavItem[] => items.filter((n) => (!n.verb || can(me, n.verb)) && (!me?.job || n.to === "/settings"));
