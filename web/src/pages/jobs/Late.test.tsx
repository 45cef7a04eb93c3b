import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/api/types";
import { Late } from "./Late";

vi.mock("@tanstack/react-router", () => ({ createLink: () => () => null, Link: ({ children }: { children: React.ReactNode }) => <span>{children}</span> }));
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

it("shows what attempts reported after they had been given up", async () => {
  const at = new Date(0).toISOString();
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ late: [{ attempt: "7.3#1", outcome: "succeeded", worker: "w-a", at, finished_at: at }] })));
  const job: Job = { id: 7, name: "tune", project: "p", priority: 50, state: "succeeded", counts: {} };
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={new QueryClient()}>
        <Late job={job} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await screen.findByText(/^1 late report:/);
  expect(screen.getByText("7.3, attempt 1")).toBeTruthy();
  expect(screen.getByText("succeeded")).toBeTruthy();
});
