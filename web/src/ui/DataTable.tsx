import { ActionIcon, Checkbox, Menu, Tooltip } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, ArrowUp, Columns3 } from "lucide-react";
import { memo, useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import css from "./DataTable.module.css";
import { Sorter } from "./sort";

export interface Column<Row> {
  readonly id: string;
  readonly header: string;
  readonly cell: (row: Row) => ReactNode;
  /** A CSS grid track; default "minmax(80px, 1fr)". */
  readonly width?: string;
  /** What rows are sorted by in the browser; a column without it is not sortable, unless onSort is given. */
  readonly sort?: (row: Row) => string | number | undefined;
  readonly align?: "right";
  /** Not shown unless the user chooses it. */
  readonly optional?: boolean;
  /** Not shown when the table is narrower than this many pixels. */
  readonly minTable?: number;
}

export interface Sort {
  readonly by: string;
  readonly desc: boolean;
}

export interface DataTableProps<Row> {
  /** Names the table in local storage, for the chosen columns. */
  readonly id: string;
  /** What it lists, for a screen reader: "Jobs". */
  readonly label: string;
  readonly rows: readonly Row[];
  readonly columns: readonly Column<Row>[];
  readonly rowKey: (row: Row) => string;
  /** Enter or a click on a row. */
  readonly onOpen?: (row: Row) => void;
  readonly sort?: Sort | undefined;
  /** With it, sorting is the caller's (for example of the server); without, rows are sorted here. */
  readonly onSort?: (sort: Sort | undefined) => void;
  /** Keys of selected rows; with onSelect, rows have a checkbox. */
  readonly selected?: ReadonlySet<string>;
  readonly onSelect?: (selected: ReadonlySet<string>) => void;
  /** Called when the last rows are visible: loads more. */
  readonly onEnd?: () => void;
  readonly rowHeight?: number;
  /** A CSS height at most; default: what the window leaves. */
  readonly maxHeight?: string;
  /** How many rows there are in all, if more than are loaded. */
  readonly total?: number;
  /** Called with the rows that are in view, in the order in which they are shown. */
  readonly onVisible?: (rows: readonly Row[], atTop: boolean) => void;
}

/** A list of rows of any length: virtual, sortable, with a choice of columns, by mouse and by keyboard. */
export function DataTable<Row>({ id, label, rows, columns, rowKey, onOpen, sort, onSort, selected, onSelect, onEnd, rowHeight = 40, maxHeight = "max(320px, calc(100dvh - 250px))", total, onVisible }: DataTableProps<Row>) {
  const scroller = useRef<HTMLDivElement>(null);
  const [own, setOwn] = useState<Sort>();
  const [active, setActive] = useState(0);
  const [width, setWidth] = useState(1200);
  const [choice, setChoice] = useLocalStorage<Record<string, boolean>>({ key: `muster-columns-${id}`, defaultValue: {} });
  const order = onSort ? sort : (own ?? sort);

  const visible = useMemo(() => columns.filter((c) => choice[c.id] ?? (!c.optional && width >= (c.minTable ?? 0))), [columns, choice, width]);
  const by = onSort ? undefined : columns.find((c) => c.id === order?.by);
  const [sorter] = useState(() => new Sorter<Row>());
  const sorted = useMemo(() => (by?.sort && order ? sorter.sort(rows, by.sort, order.desc) : rows), [rows, by, order, sorter]);
  const virtual = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
    useFlushSync: false,
    initialRect: { width: 1200, height: 800 },
  });
  const items = virtual.getVirtualItems();

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const end = items[items.length - 1]?.index ?? 0;
  const near = sorted.length > 0 && end >= sorted.length - 10;
  const count = sorted.length;
  const reached = useRef(onEnd);
  useEffect(() => {
    reached.current = onEnd;
  });
  useEffect(() => {
    if (near) reached.current?.();
  }, [near, count]);

  const first = items[0]?.index ?? 0;
  const atTop = (virtual.scrollOffset ?? 0) < rowHeight;
  const seen = useRef(onVisible);
  useEffect(() => {
    seen.current = onVisible;
  });
  useEffect(() => {
    seen.current?.(sorted.slice(first, end + 1), atTop);
  }, [sorted, first, end, atTop]);

  const clickSort = (c: Column<Row>) => {
    const next = order?.by !== c.id ? { by: c.id, desc: false } : order.desc ? undefined : { by: c.id, desc: true };
    if (onSort) onSort(next);
    else setOwn(next);
  };
  // Where a range that is selected with the shift key begins.
  const anchor = useRef(0);
  const toggle = (index: number, key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    anchor.current = index;
    onSelect?.(next);
  };
  const extend = (to: number) => {
    const from = Math.min(anchor.current, sorted.length - 1);
    const next = new Set(selected);
    for (const r of sorted.slice(Math.min(from, to), Math.max(from, to) + 1)) next.add(rowKey(r));
    onSelect?.(next);
  };
  const move = (to: number) => {
    const index = Math.max(0, Math.min(sorted.length - 1, to));
    setActive(index);
    virtual.scrollToIndex(index);
    // The row may be rendered only after the scroll.
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-row="${index}"]`)?.focus({ preventScroll: true }));
  };
  const onKeyDown = (e: KeyboardEvent<HTMLElement>, index: number, row: Row) => {
    if (e.target !== e.currentTarget && e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 400) / rowHeight) - 2);
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, PageDown: index + page, PageUp: index - page, Home: 0, End: sorted.length - 1 }[e.key];
    if (to !== undefined) {
      if (onSelect && e.shiftKey) {
        if (!selected?.has(rowKey(row))) anchor.current = index;
        extend(Math.max(0, Math.min(sorted.length - 1, to)));
      }
      move(to);
    } else if (e.key === "Enter" && onOpen) onOpen(row);
    else if (e.key === " " && onSelect && e.shiftKey) extend(index);
    else if (e.key === " " && onSelect) toggle(index, rowKey(row));
    else if (e.key === "a" && (e.ctrlKey || e.metaKey) && onSelect) onSelect(new Set(sorted.map(rowKey)));
    else if (e.key === "Escape" && onSelect && selected?.size) onSelect(new Set());
    else return;
    e.preventDefault();
  };

  const handlers: RowHandlers<Row> = { focus: setActive, key: onKeyDown, toggle, extend, open: (row) => onOpen?.(row) };
  const latest = useRef(handlers);
  useEffect(() => {
    latest.current = handlers;
  });
  const on = useMemo(
    (): RowHandlers<Row> => ({
      focus: (index) => latest.current.focus(index),
      key: (e, index, row) => latest.current.key(e, index, row),
      toggle: (index, key) => latest.current.toggle(index, key),
      extend: (to) => latest.current.extend(to),
      open: (row) => latest.current.open(row),
    }),
    [],
  );

  const template = [...(onSelect ? ["34px"] : []), ...visible.map((c) => c.width ?? "minmax(80px, 1fr)"), "28px"].join(" ");
  const focusable = Math.min(active, Math.max(0, sorted.length - 1));
  const allSelected = sorted.length > 0 && sorted.every((r) => selected?.has(rowKey(r)));
  return (
    <div className={css.frame}>
      <div ref={scroller} className={css.scroller} style={{ maxHeight }} role="table" aria-label={label} aria-rowcount={(total ?? sorted.length) + 1} data-testid={`table-${id}`}>
        <div className={css.header} role="rowgroup">
          <div className={css.row} role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
            {onSelect && (
              <span role="columnheader" className={css.check}>
                <input
                  type="checkbox"
                  ref={(box) => {
                    if (box) box.indeterminate = !allSelected && (selected?.size ?? 0) > 0;
                  }}
                  aria-label="Select all"
                  checked={allSelected}
                  onChange={() => onSelect(allSelected ? new Set() : new Set(sorted.map(rowKey)))}
                />
              </span>
            )}
            {visible.map((c) => {
              const is = order?.by === c.id;
              return (
                <span key={c.id} role="columnheader" className={css.head} data-align={c.align} aria-sort={is ? (order.desc ? "descending" : "ascending") : undefined}>
                  {c.sort ? (
                    <button type="button" className={css.sort} onClick={() => clickSort(c)}>
                      <span className="truncate">{c.header}</span>
                      {is && (order.desc ? <ArrowDown size={13} aria-hidden /> : <ArrowUp size={13} aria-hidden />)}
                    </button>
                  ) : (
                    <span className="truncate">{c.header}</span>
                  )}
                </span>
              );
            })}
            <span role="columnheader" className={css.menu}>
              <Menu position="bottom-end" closeOnItemClick={false}>
                <Menu.Target>
                  <Tooltip label="Columns">
                    <ActionIcon size="sm" aria-label="Choose columns">
                      <Columns3 size={15} aria-hidden />
                    </ActionIcon>
                  </Tooltip>
                </Menu.Target>
                <Menu.Dropdown>
                  {columns.map((c) => {
                    const on = visible.includes(c);
                    return (
                      <Menu.Item key={c.id} role="menuitemcheckbox" aria-checked={on} leftSection={<Checkbox.Indicator size="xs" checked={on} />} onClick={() => setChoice({ ...choice, [c.id]: !on })}>
                        {c.header}
                      </Menu.Item>
                    );
                  })}
                </Menu.Dropdown>
              </Menu>
            </span>
          </div>
        </div>
        <div role="rowgroup" className={css.body} style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = sorted[item.index];
            if (row === undefined) return null;
            const key = rowKey(row);
            return (
              <TableRow
                key={key}
                id={key}
                row={row}
                index={item.index}
                start={item.start}
                height={rowHeight}
                template={template}
                columns={visible}
                selected={onSelect ? (selected?.has(key) ?? false) : undefined}
                focusable={item.index === focusable}
                opens={onOpen !== undefined}
                on={on}
              />
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** What a row tells its table. */
interface RowHandlers<Row> {
  readonly focus: (index: number) => void;
  readonly key: (e: KeyboardEvent<HTMLElement>, index: number, row: Row) => void;
  readonly toggle: (index: number, key: string) => void;
  readonly extend: (to: number) => void;
  readonly open: (row: Row) => void;
}

interface RowProps<Row> {
  readonly id: string;
  readonly row: Row;
  readonly index: number;
  readonly start: number;
  readonly height: number;
  readonly template: string;
  readonly columns: readonly Column<Row>[];
  /** Undefined: rows cannot be selected. */
  readonly selected: boolean | undefined;
  readonly focusable: boolean;
  readonly opens: boolean;
  readonly on: RowHandlers<Row>;
}

/** One row. A scroll or a refresh renders only rows that came into view or changed; a row is plain elements, because a scroll makes many. */
const TableRow = memo(function TableRow<Row>({ id, row, index, start, height, template, columns, selected, focusable, opens, on }: RowProps<Row>) {
  return (
    // The keys of a row are those of its table; what a click opens has a link in the row, too.
    <div
      role="row"
      aria-rowindex={index + 2}
      aria-selected={selected}
      data-row={index}
      data-open={opens ? "" : undefined}
      data-selected={selected || undefined}
      tabIndex={focusable ? 0 : -1}
      className={`${css.row} ${css.item}`}
      style={{ gridTemplateColumns: template, height, top: start }}
      onFocus={() => on.focus(index)}
      onKeyDown={(e) => on.key(e, index, row)}
      onClick={(e) => {
        if (opens && !(e.target as Element).closest("a, button, input, label") && !getSelection()?.toString()) on.open(row);
      }}
    >
      {selected !== undefined && (
        <span role="cell" className={css.check}>
          <input type="checkbox" tabIndex={-1} aria-label={`Select ${id}`} checked={selected} onChange={() => undefined} onClick={(e) => (e.shiftKey ? on.extend(index) : on.toggle(index, id))} />
        </span>
      )}
      {columns.map((c) => (
        <span key={c.id} role="cell" className={css.cell} data-align={c.align}>
          {c.cell(row)}
        </span>
      ))}
      <span role="cell" />
    </div>
  );
}) as <Row>(props: RowProps<Row>) => ReactNode;
