import { lazy, Suspense } from "react";
import type { TimeChartProps } from "./TimeChartCanvas";

export type { ChartMarker, ChartSeries, TimeChartProps } from "./TimeChartCanvas";

const Canvas = lazy(() => import("./TimeChartCanvas"));

/** A chart over time; uPlot is loaded when the first one is shown. */
export function TimeChart(props: TimeChartProps) {
  return (
    <Suspense fallback={<div style={{ height: (props.height ?? 180) + 34 }} aria-busy="true" />}>
      <Canvas {...props} />
    </Suspense>
  );
}
