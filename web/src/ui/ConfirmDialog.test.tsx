import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, expect, it } from "vitest";
import { ConfirmDialog } from "./ConfirmDialog";

afterEach(cleanup);

function Page({ action }: { action: () => Promise<unknown> }) {
  const [opened, setOpened] = useState(false);
  return (
    <MantineProvider env="test">
      <button onClick={() => setOpened(true)}>ask</button>
      <ConfirmDialog opened={opened} onClose={() => setOpened(false)} title="Cancel job 17?" action="Cancel the job" onConfirm={action} />
    </MantineProvider>
  );
}
const click = (name: string) => userEvent.click(screen.getByRole("button", { name }));

it("stays open while the action runs, so that its failure is seen there, and only there", async () => {
  let fail: (e: Error) => void = () => undefined;
  render(<Page action={() => new Promise((_, reject) => (fail = reject))} />);
  await click("ask");
  await click("Cancel the job");
  await userEvent.keyboard("{Escape}");
  // One at the top and one next to the action.
  expect(screen.getAllByRole<HTMLButtonElement>("button", { name: "Close" }).map((b) => b.disabled)).toEqual([true, true]);
  expect(screen.getByRole("dialog")).toBeTruthy();
  fail(new Error("it has ended"));
  expect((await screen.findByRole("alert")).textContent).toBe("it has ended");
  await userEvent.keyboard("{Escape}");
  expect(screen.queryByRole("dialog")).toBeNull();
  await click("ask");
  expect(screen.getByRole("dialog")).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});
