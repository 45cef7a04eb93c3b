import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { useTyped } from "./useTyped";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

it("keeps what is typed, commits it when typing rests, and takes a value that comes from elsewhere", () => {
  const commit = vi.fn();
  const { result, rerender } = renderHook(({ value }) => useTyped(value, commit), { initialProps: { value: "" } });
  const text = () => result.current[0];
  const type = (t: string) =>
    act(() => {
      result.current[1](t);
    });
  const pass = () =>
    act(() => {
      vi.advanceTimersByTime(1_000);
    });
  type("g");
  type("gp");
  expect(text()).toBe("gp");
  expect(commit).not.toHaveBeenCalled();
  pass();
  expect(commit.mock.calls).toEqual([["gp"]]);
  // The URL follows after the next letter was typed.
  type("gpu");
  rerender({ value: "gp" });
  expect(text()).toBe("gpu");
  pass();
  rerender({ value: "gpu" });
  expect(commit).toHaveBeenLastCalledWith("gpu");
  rerender({ value: "" });
  expect(text()).toBe("");
});
