import type { MantineColorScheme } from "@mantine/core";
import { Monitor, Moon, Sun, type LucideIcon } from "lucide-react";

/** The colour schemes that can be chosen. */
export const schemes: readonly { value: MantineColorScheme; label: string; icon: LucideIcon }[] = [
  { value: "auto", label: "Like the system", icon: Monitor },
  { value: "light", label: "Light", icon: Sun },
  { value: "dark", label: "Dark", icon: Moon },
];
