import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import ShareDialog from "./ShareDialog";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const job: Job = { id: 7, name: "tune", project: "p", priority: 50, state: "succeeded", counts: {} };

it("keeps the link, which is shown once, until it is closed, and revokes all links", async () => {
  const sent: string[] = [];
  vi.stubGlobal("fetch", (r: Request) => {
    sent.push(`${r.method} ${new URL(r.url).pathname}`);
    return Promise.resolve(r.method === "POST" ? Response.json({ url: "/shared#x" }) : new Response(null, { status: 204 }));
  });
  const onClose = vi.fn();
  render(
    <MantineProvider env="test">
      <ShareDialog job={job} onClose={onClose} />
    </MantineProvider>,
  );
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Create the link" }));
  await screen.findByText(/shared#x$/);
  await user.keyboard("{Escape}");
  expect(onClose).not.toHaveBeenCalled();
  await user.click(screen.getByRole("button", { name: "Revoke all links of this job" }));
  await screen.findByRole("button", { name: "Create the link" });
  expect(sent).toEqual(["POST /api/v1/jobs/7/share", "DELETE /api/v1/jobs/7/share"]);
  await user.keyboard("{Escape}");
  expect(onClose).toHaveBeenCalled();
});
