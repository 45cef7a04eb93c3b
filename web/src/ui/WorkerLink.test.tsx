import { MantineProvider } from "@mantine/core";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import { WorkerLink } from "./WorkerLink";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

async function show(permissions: string[]) {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ key: "k-1", name: "ada", role: "viewer", version: "1", permissions })));
  await session.check();
  const root = createRootRoute();
  const index = createRoute({ getParentRoute: () => root, path: "/", component: () => <WorkerLink id="w-1" name="gpu-box" /> });
  const worker = createRoute({ getParentRoute: () => root, path: "/workers/$worker" });
  const router = createRouter({ routeTree: root.addChildren([index, worker]), history: createMemoryHistory() });
  render(
    <MantineProvider env="test">
      <RouterProvider router={router as never} />
    </MantineProvider>,
  );
  await screen.findByText("gpu-box");
}

describe("WorkerLink", () => {
  it("links to the worker for a key that may see workers", async () => {
    await show(["read jobs", "see workers"]);
    expect(screen.getByRole("link", { name: "gpu-box" }).getAttribute("href")).toBe("/workers/w-1");
  });
  it("is text for the key of a shared link", async () => {
    await show(["read jobs"]);
    expect(screen.queryByRole("link")).toBeNull();
  });
});
