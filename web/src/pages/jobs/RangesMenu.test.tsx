import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { fieldsOf, toRun } from "./model/results";
import { RangesMenu } from "./RangesMenu";
import type { Ranges } from "./search";

vi.mock("@tanstack/react-router", () => ({ useNavigate: () => undefined, Link: () => null }));
afterEach(cleanup);

const runs = [0.1, 0.2, 0.3].map((loss, index) => toRun({ id: `1.${index}`, job: 1, index, group: 0, name: "t", kind: "noop", state: "succeeded", result: { loss } }, []));

function Page({ onChange }: { onChange: (r: Ranges) => void }) {
  const [ranges, setRanges] = useState<Ranges>({});
  return (
    <MantineProvider env="test">
      <RangesMenu
        fields={fieldsOf(runs)}
        runs={runs}
        ranges={ranges}
        onChange={(change) => {
          const next = Object.fromEntries(Object.entries({ ...ranges, ...change }).filter(([, r]) => r)) as Ranges;
          setRanges(next);
          onChange(next);
        }}
      />
    </MantineProvider>
  );
}

describe("RangesMenu", () => {
  it("sets and removes the ends of a range by keyboard", async () => {
    const onChange = vi.fn();
    render(<Page onChange={onChange} />);
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Ranges" }));
    const from = await screen.findByRole<HTMLInputElement>("textbox", { name: "loss from" });
    await user.type(from, "0.15");
    expect(onChange).not.toHaveBeenCalled();
    await user.keyboard("{Enter}");
    expect(onChange).toHaveBeenLastCalledWith({ "result:loss": [0.15, null] });
    expect(document.activeElement).toBe(from);
    await user.type(screen.getByRole("textbox", { name: "loss to" }), "0.25");
    await user.tab();
    expect(onChange).toHaveBeenLastCalledWith({ "result:loss": [0.15, 0.25] });
    await user.type(from, "x{Enter}");
    expect(from.getAttribute("aria-invalid")).toBe("true");
    expect(onChange).toHaveBeenCalledTimes(2);
    await user.clear(from);
    await user.clear(screen.getByRole("textbox", { name: "loss to" }));
    await user.keyboard("{Enter}");
    expect(onChange).toHaveBeenLastCalledWith({});
  });
});
