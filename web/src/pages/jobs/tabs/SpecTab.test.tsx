import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import type { Job } from "@/api/types";
import { admin } from "@/testing/whoami";
import type { JobSearch } from "../search";
import SpecTab from "./SpecTab";

vi.mock("@tanstack/react-router", () => ({ Link: ({ children }: { children: React.ReactNode }) => <span>{children}</span> }));
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const group = (index: number, name: string, first: number) => ({ job: 7, index, name, first, size: 100, counts: {} });
const job: Job = { id: 7, name: "tune", project: "p", priority: 50, state: "running", counts: {}, spec: { name: "tune" } as never, groups: [group(0, "prepare", 0), group(1, "train", 100)] };

async function show(initial: JobSearch, me: object = admin) {
  vi.stubGlobal("fetch", (input: string | Request) => Promise.resolve(Response.json(typeof input === "string" ? me : {})));
  await session.check();
  function Page() {
    const [search, setSearch] = useState(initial);
    return <SpecTab job={job} search={search} set={(change) => setSearch({ ...search, ...change })} />;
  }
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={new QueryClient()}>
        <Page />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

describe("SpecTab", () => {
  it("opens as the spec also when a stage was chosen on another tab", async () => {
    await show({ stage: "train" });
    expect(screen.getByRole<HTMLInputElement>("radio", { name: "Spec" }).checked).toBe(true);
  });
  it("takes a number that is typed digit by digit", async () => {
    await show({ stage: "train", view: "resolved" });
    const field = await screen.findByRole<HTMLInputElement>("textbox", { name: "Task, 100 to 199" });
    for (const value of ["1", "15", "150"]) {
      fireEvent.change(field, { target: { value } });
      expect(field.value).toBe(value);
    }
    expect(screen.getByText("Open task 7.150")).toBeTruthy();
    fireEvent.change(field, { target: { value: "15" } });
    fireEvent.blur(field);
    expect(field.value).toBe("150");
  });
  it("offers a shared link no earlier run, which it may not read", async () => {
    await show({ diff: "previous" }, { role: "viewer", permissions: ["read jobs"], job: 7 });
    expect(screen.queryByRole("radio", { name: "Changes" })).toBeNull();
    expect(screen.getByRole<HTMLInputElement>("radio", { name: "Spec" }).checked).toBe(true);
  });
});
