import { measures, type Measure } from "./heat";

// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.
export const spans = ["1h", "6h", "24h", "7d"] as const;
export type Span = (typeof spans)[number];

export interface OverviewSearch {
  /** How far back the charts go; default 1h. */
  span?: Span;
  /** What the cells of the heat map show; default: utilization. */
  measure?: Measure;
}
export const validateOverview = (s: Record<string, unknown>): OverviewSearch => {
  const span = spans.find((v) => v === s["span"]);
  const measure = measures.find((m) => m === s["measure"]);
  return { ...(span && span !== "1h" && { span }), ...(measure && measure !== "utilization" && { measure }) };
};
