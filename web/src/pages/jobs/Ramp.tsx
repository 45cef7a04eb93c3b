import { useComputedColorScheme } from "@mantine/core";
import css from "./plot.module.css";
import { colorAt, number } from "./model/plot";
import type { Field } from "./model/results";
import { label } from "./tabs/Results";

/** What the colours of a plot mean. */
export function Ramp({ field, note }: { field: Field; note?: string | undefined }) {
  const scheme = useComputedColorScheme("light");
  const stops = [0, 0.25, 0.5, 0.75, 1].map((p) => colorAt(p, scheme)).join(", ");
  return (
    <div className={css.ramp}>
      <span>
        {label(field)}
        {note && ` (${note})`}
      </span>
      <span>{number(field.min)}</span>
      <span className={css.bar} style={{ background: `linear-gradient(to right, ${stops})` }} aria-hidden />
      <span>{number(field.max)}</span>
    </div>
  );
}
