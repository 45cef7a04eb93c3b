import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeAll, expect, it, vi } from "vitest";
import type { OverviewGPU, Worker } from "@/api/types";
import { GPUTable } from "./GPUTable";

// happy-dom has no layout: the virtualizer asks for the size of its element.
beforeAll(() => {
  for (const name of ["offsetHeight", "clientHeight", "offsetWidth", "clientWidth"]) Object.defineProperty(HTMLDivElement.prototype, name, { configurable: true, value: 900 });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("lists devices by worker and index, and sorts them by use", async () => {
  const gpu = (index: number, utilization: number): OverviewGPU => ({ worker: "w-1", worker_name: "lab-1", index, uuid: `GPU-${index}`, name: "H100", memory: 80, memory_used: 40, utilization, tasks: 0 });
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ gpus: [gpu(10, 0.5), gpu(2, 0.8)] })));
  const worker: Worker = { id: "w-1", name: "lab-1", state: "active", running: 0, resources: { cpus: 1, memory: 1, disk: 1, slots: 1 } };
  const root = createRootRoute();
  const index = createRoute({ getParentRoute: () => root, path: "/", component: () => <GPUTable workers={[worker]} q="" onShowAll={() => undefined} /> });
  const page = createRoute({ getParentRoute: () => root, path: "/workers/$worker" });
  const router = createRouter({ routeTree: root.addChildren([index, page]), history: createMemoryHistory() });
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={new QueryClient()}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await screen.findByText("80%");
  const first = () => screen.getAllByRole("row")[1]?.textContent;
  expect(first()).toContain("80%");
  await userEvent.click(screen.getByRole("button", { name: "Use" }));
  expect(first()).toContain("50%");
});
