import { useId } from "react";

type Value = number | null | undefined;

/** A small line without axes. Its label must say what the numbers mean, because a screen reader reads nothing else. */
export function Sparkline({ values, label, color = "var(--chart-1)", width = 120, height = 28, max }: {
  values: readonly Value[];
  label: string;
  color?: string;
  width?: number;
  height?: number;
  /** The value at the top; default: the largest. */
  max?: number;
}) {
  const id = useId();
  const path = line(values, width, height, max);
  return (
    <svg viewBox={`0 0 ${width} ${height}`} width="100%" height={height} preserveAspectRatio="none" role="img" aria-label={label} style={{ display: "block" }}>
      <defs>
        <linearGradient id={id} x1="0" y1="0" x2="0" y2="1">
          <stop offset="0%" stopColor={color} stopOpacity={0.28} />
          <stop offset="100%" stopColor={color} stopOpacity={0.02} />
        </linearGradient>
      </defs>
      {path.area && <path d={path.area} fill={`url(#${id})`} />}
      {path.line && <path d={path.line} fill="none" stroke={color} strokeWidth={1.5} vectorEffect="non-scaling-stroke" strokeLinejoin="round" strokeLinecap="round" />}
    </svg>
  );
}

/** The line and the area under it as SVG paths; unknown values leave a gap. */
export function line(values: readonly Value[], width: number, height: number, max?: number): { line: string; area: string } {
  let top = max ?? 0;
  if (max === undefined) for (const v of values) if (typeof v === "number" && v > top) top = v;
  if (top <= 0) top = 1;
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  const y = (v: number) => height - 1.5 - (Math.min(top, Math.max(0, v)) / top) * (height - 3);
  const f = (n: number) => String(Math.round(n * 10) / 10);
  let path = "";
  let area = "";
  let run: number[] = [];
  const close = () => {
    const first = run[0];
    const last = run[run.length - 1];
    if (first === undefined || last === undefined) return;
    let d = "";
    for (const i of run) d += `${d ? "L" : "M"}${f(i * step)} ${f(y(values[i] as number))}`;
    path += first === last ? `${d}h0` : d; // a dot
    area += `${d}L${f(last * step)} ${height}L${f(first * step)} ${height}Z`;
    run = [];
  };
  values.forEach((v, i) => {
    if (typeof v === "number" && Number.isFinite(v)) run.push(i);
    else close();
  });
  close();
  return { line: path, area };
}
