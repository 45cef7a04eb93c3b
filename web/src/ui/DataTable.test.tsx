import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { DataTable, type Column } from "./DataTable";

interface Row {
  id: string;
  size?: number;
}
const columns: Column<Row>[] = [
  { id: "id", header: "ID", cell: (r) => r.id, sort: (r) => r.id },
  { id: "size", header: "Size", cell: (r) => String(r.size ?? "–"), sort: (r) => r.size },
  { id: "extra", header: "Extra", cell: () => "x", optional: true },
];
const rows: Row[] = [{ id: "b", size: 10 }, { id: "a" }, { id: "c", size: 9 }];

// happy-dom has no layout: the virtualizer asks for the size of its element.
beforeAll(() => {
  for (const [name, value] of Object.entries({ offsetHeight: 600, clientHeight: 600, offsetWidth: 900, clientWidth: 900 })) {
    Object.defineProperty(HTMLDivElement.prototype, name, { configurable: true, value });
  }
});
beforeEach(() => localStorage.clear());
afterEach(cleanup);

function show(props: Partial<Parameters<typeof DataTable<Row>>[0]> = {}) {
  render(
    <MantineProvider env="test">
      <DataTable id="t" label="Things" rows={rows} columns={columns} rowKey={(r) => r.id} {...props} />
    </MantineProvider>,
  );
}
const ids = () => screen.getAllByRole("row").slice(1).map((r) => within(r).getAllByRole("cell")[0]?.textContent);

describe("DataTable", () => {
  it("sorts on a click of the header: ascending, descending, as given", async () => {
    show();
    expect(ids()).toEqual(["b", "a", "c"]);
    await userEvent.click(screen.getByRole("button", { name: "ID" }));
    expect(ids()).toEqual(["a", "b", "c"]);
    await userEvent.click(screen.getByRole("button", { name: "ID" }));
    expect(ids()).toEqual(["c", "b", "a"]);
    await userEvent.click(screen.getByRole("button", { name: "ID" }));
    expect(ids()).toEqual(["b", "a", "c"]);
  });

  it("selects a range with shift and a click or an arrow", async () => {
    const onSelect = vi.fn();
    const many = ["a", "b", "c", "d"].map((id) => ({ id }));
    const props = { rows: many, onSelect, selected: new Set<string>() };
    show(props);
    const user = userEvent.setup();
    await user.click(screen.getByRole("checkbox", { name: "Select b" }));
    expect(onSelect).toHaveBeenLastCalledWith(new Set(["b"]));
    await user.keyboard("{Shift>}");
    await user.click(screen.getByRole("checkbox", { name: "Select d" }));
    expect(onSelect).toHaveBeenLastCalledWith(new Set(["b", "c", "d"]));
    await user.keyboard("{/Shift}");
    screen.getAllByRole("row")[1]?.focus();
    await user.keyboard("{Shift>}{ArrowDown}{/Shift}");
    expect(onSelect).toHaveBeenLastCalledWith(new Set(["a", "b"]));
  });

  it("opens a row with Enter and with a click", async () => {
    const onOpen = vi.fn();
    show({ onOpen });
    await userEvent.click(screen.getByText("c"));
    screen.getAllByRole("row")[1]?.focus();
    await userEvent.keyboard("{Enter}");
    expect(onOpen.mock.calls.map(([r]) => (r as Row).id)).toEqual(["c", "b"]);
  });

  it("selects rows with their checkbox and with the space bar", async () => {
    const onSelect = vi.fn();
    show({ onSelect, selected: new Set(["a"]) });
    await userEvent.click(screen.getByLabelText("Select b"));
    expect(onSelect).toHaveBeenLastCalledWith(new Set(["a", "b"]));
    screen.getAllByRole("row")[2]?.focus();
    await userEvent.keyboard(" ");
    expect(onSelect).toHaveBeenLastCalledWith(new Set());
  });

  it("renders few rows of many and says how many there are", () => {
    show({ rows: Array.from({ length: 100_000 }, (_, i) => ({ id: `r${i}` })) });
    expect(screen.getAllByRole("row").length).toBeGreaterThan(10);
    expect(screen.getAllByRole("row").length).toBeLessThan(80);
    expect(screen.getByRole("table").getAttribute("aria-rowcount")).toBe("100001");
  });

  it("asks for more when the end is in view", () => {
    const onEnd = vi.fn();
    show({ onEnd });
    expect(onEnd).toHaveBeenCalledTimes(1);
  });
});
