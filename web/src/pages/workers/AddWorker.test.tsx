import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import { admin } from "@/testing/whoami";
import { AddWorker } from "./AddWorker";

beforeEach(async () => {
  vi.stubGlobal("fetch", (input: string | Request) => {
    const path = typeof input === "string" ? input : new URL(input.url).pathname;
    if (path === "/api/v1/whoami") return Promise.resolve(Response.json({ ...admin, download: { os: "linux", arch: "arm64" } }));
    if (path === "/api/v1/keys") return Promise.resolve(Response.json({ secret: "mst_join_once", key: { created_at: "2026-01-02T15:04:05.000Z" } }, { status: 201 }));
    return Promise.resolve(Response.json({ workers: [] }));
  });
  await session.check();
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

function open() {
  const onClose = vi.fn();
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
        <AddWorker opened onClose={onClose} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  return onClose;
}
const make = async () => {
  await userEvent.click(screen.getByRole("button", { name: "Create a join token" }));
  await screen.findByText(/shown this once/);
};
const lines = () => screen.getAllByTestId("join-line").map((l) => l.textContent).join("\n");

describe("the dialog", () => {
  it("ends with Escape, but not while it shows a token", async () => {
    const onClose = open();
    await userEvent.keyboard("{Escape}");
    expect(onClose).toHaveBeenCalledTimes(1);
    await make();
    await userEvent.keyboard("{Escape}");
    const overlay = document.querySelector(".mantine-Modal-inner");
    if (overlay) await userEvent.click(overlay);
    expect(onClose).toHaveBeenCalledTimes(1);
    expect(lines()).toContain("mst_join_once");
  });

  it("begins with a machine like the server, and says what is missing for others", async () => {
    open();
    await make();
    expect(lines()).toContain("/download/muster");
    expect(screen.queryByText(/This server has the program/)).toBeNull();
    await userEvent.click(screen.getByRole("radio", { name: "x86-64" }));
    expect(screen.getByText(/This server has the program for linux\/arm64 only. Build it for linux\/amd64/)).toBeTruthy();
    expect(lines()).toContain("GOOS=linux GOARCH=amd64 go build");
    await userEvent.click(screen.getByRole("radio", { name: "macOS" }));
    expect(lines()).toContain("GOOS=darwin GOARCH=amd64 go build");
  });

  it("gives a container the GPUs that are chosen", async () => {
    open();
    await make();
    expect(screen.queryByRole("radio", { name: "AMD" })).toBeNull();
    await userEvent.click(screen.getByRole("radio", { name: "Container" }));
    expect(lines()).toContain("--gpus all");
    await userEvent.click(screen.getByRole("radio", { name: "AMD" }));
    expect(lines()).toContain("--device /dev/kfd");
    await userEvent.click(screen.getByRole("radio", { name: "No GPUs" }));
    expect(lines()).not.toMatch(/--gpus|--device/);
    expect(screen.queryByText(/container toolkit/)).toBeNull();
  });
});
