import type { Attempt } from "@/api/types";

/** 2 of "17.3#2". */
export function numberOf(a: Pick<Attempt, "id">): number {
  return Number(a.id.slice(a.id.indexOf("#") + 1));
}
