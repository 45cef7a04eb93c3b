import { MantineProvider } from "@mantine/core";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { Filters } from "./Filters";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

it("a name that is cleared just after it was typed does not come back", () => {
  vi.useFakeTimers();
  const onChange = vi.fn();
  render(
    <MantineProvider env="test">
      <Filters search={{}} onChange={onChange} rows={[]} />
    </MantineProvider>,
  );
  fireEvent.change(screen.getByRole("textbox", { name: "Search by name" }), { target: { value: "tune" } });
  fireEvent.click(screen.getByRole("button", { name: "Clear the search" }));
  vi.advanceTimersByTime(1_000);
  expect(onChange.mock.calls).toEqual([[{}]]);
});
