import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import type { Job } from "@/api/types";
import { admin } from "@/testing/whoami";
import { JobActions } from "./JobActions";

vi.mock("@tanstack/react-router", () => ({ useNavigate: () => () => Promise.resolve() }));
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const job: Job = { id: 7, name: "tune", project: "p", priority: 50, state: "succeeded", counts: { succeeded: 1 }, spec: { name: "tune" } as never };

/** Signs in as someone, and shows what can be done with the job. */
async function show(me: object) {
  const sent: Request[] = [];
  vi.stubGlobal(
    "fetch",
    vi.fn((request: string | Request) => {
      if (typeof request === "string") return Promise.resolve(Response.json(me));
      sent.push(request);
      return Promise.reject(new TypeError("the connection was lost"));
    }),
  );
  await session.check();
  render(
    <MantineProvider env="test">
      <JobActions job={job} />
    </MantineProvider>,
  );
  return sent;
}

describe("Run again", () => {
  it("sends one idempotency key for as long as its dialog is open", async () => {
    const sent = await show(admin);
    const user = userEvent.setup();
    await user.click(screen.getByRole("button", { name: "Run again" }));
    await user.click(screen.getByRole("button", { name: "Submit" }));
    await screen.findByRole("alert");
    await user.click(screen.getByRole("button", { name: "Submit" }));
    await vi.waitFor(() => expect(sent).toHaveLength(2));
    await screen.findByRole("alert");
    await user.keyboard("{Escape}");
    await user.click(screen.getByRole("button", { name: "Run again" }));
    await user.click(screen.getByRole("button", { name: "Submit" }));
    await vi.waitFor(() => expect(sent).toHaveLength(3));
    const [first, second, third] = sent.map((r) => r.headers.get("Idempotency-Key"));
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });
});

describe("the menu", () => {
  it.each([
    [admin, true],
    [{ role: "viewer", permissions: ["read jobs"], job: 7 }, false],
  ])("of %j offers other jobs: %s", async (me, offered) => {
    await show(me);
    await userEvent.click(screen.getByRole("button", { name: "More actions" }));
    await screen.findByRole("menuitem", { name: "Download the spec" });
    expect(screen.queryAllByRole("menuitem", { name: "Compare with other jobs" })).toHaveLength(offered ? 1 : 0);
  });
});
