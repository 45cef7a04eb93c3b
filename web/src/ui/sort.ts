type Key = string | number | undefined;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function compare(a: Key, b: Key, desc: boolean): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
  return desc ? -order : order;
}

/** Sorts the rows of one table. While the values that they are sorted by stay the same, as in most refreshes, none is compared again. */
export class Sorter<Row> {
  private keys: readonly Key[] = [];
  private places: readonly number[] = [];
  private desc = false;

  /** As sortRows. */
  sort(rows: readonly Row[], by: (row: Row) => Key, desc: boolean): readonly Row[] {
    const keys = rows.map(by);
    if (desc !== this.desc || keys.length !== this.keys.length || keys.some((k, i) => k !== this.keys[i])) {
      this.places = [...keys.keys()].sort((i, j) => compare(keys[i], keys[j], desc));
      this.keys = keys;
      this.desc = desc;
    }
    return this.places.map((i) => rows[i] as Row);
  }
}

/** Sorts by a value; rows without a value are last in both directions, equal ones keep their order. */
export function sortRows<Row>(rows: readonly Row[], by: (row: Row) => Key, desc: boolean): readonly Row[] {
  return new Sorter<Row>().sort(rows, by, desc);
}
