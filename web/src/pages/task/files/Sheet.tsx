import { useMemo, useState } from "react";
import { Anchor, Text } from "@mantine/core";
import { count } from "@/ui/format";
import css from "./files.module.css";

const maxColumns = 60;
const page = 100;

/** The first rows of a table. Columns of numbers are aligned to the right. */
export function Sheet({ header, rows }: { header: readonly string[]; rows: readonly (readonly string[])[] }) {
  const [shown, setShown] = useState(page);
  const columns = Math.min(maxColumns, Math.max(header.length, ...rows.slice(0, 20).map((r) => r.length), 1));
  const numeric = useMemo(() => Array.from({ length: columns }, (_, i) => rows.slice(0, 50).every((r) => /^\s*-?[\d.,]*(e[+-]?\d+)?\s*$|^nan$/i.test(r[i] ?? ""))), [rows, columns]);
  return (
    // It scrolls, so the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div className={css.body} style={{ padding: 0 }} tabIndex={0} role="region" aria-label="Table">
      <table className={css.table}>
        <thead>
          <tr>
            <th className={css.row}>#</th>
            {Array.from({ length: columns }, (_, i) => (
              <th key={i} title={header[i]}>
                {header[i] ?? ""}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((r, n) => (
            <tr key={n}>
              <td className={css.row}>{n + 1}</td>
              {Array.from({ length: columns }, (_, i) => (
                <td key={i} data-number={numeric[i] || undefined} title={(r[i]?.length ?? 0) > 40 ? r[i] : undefined}>
                  {r[i] ?? ""}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <Text p={10} size="sm">
          <Anchor component="button" type="button" size="sm" onClick={() => setShown(shown + page * 2)}>
            Show more rows ({count(rows.length - shown)} loaded)
          </Anchor>
        </Text>
      )}
      {header.length > maxColumns && (
        <Text p={10} size="sm" c="dimmed">
          The first {maxColumns} of {count(header.length)} columns.
        </Text>
      )}
    </div>
  );
}
