import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { LiveEvent } from "@/api/live";
import { Refresher } from "@/api/refresh";
import { metricsQuery, usageQuery } from "./api";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("reads what the newest attempt reported and used once more when the task has ended, and former attempts once", async () => {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (request: Request) => {
    const { pathname, searchParams } = new URL(request.url);
    asked.push(`${pathname.slice(pathname.lastIndexOf("/") + 1)} of ${searchParams.get("attempt") ?? ""}`);
    return Promise.resolve(Response.json({ attempts: [], samples: [] }));
  });
  const client = new QueryClient();
  const leave = [1, 2].flatMap((n) => {
    const newest = n === 2;
    return [new QueryObserver(client, metricsQuery("17.0", n, newest)).subscribe(() => undefined), new QueryObserver(client, usageQuery("17.0", n, newest, false)).subscribe(() => undefined)];
  });
  await vi.advanceTimersByTimeAsync(3_000);
  expect(asked.splice(0).sort()).toEqual(["metrics of 1", "metrics of 2", "usage of 1", "usage of 2"]);
  const refresher = new Refresher(client);
  const ended: LiveEvent = { epoch: "e", seq: 1, type: "task", at: "", task: "17.0", state: "succeeded" };
  refresher.note({ events: [ended], resync: false });
  for (let second = 0; second < 10; second++) {
    refresher.tick(Date.now());
    await vi.advanceTimersByTimeAsync(1_000);
  }
  expect(asked.sort()).toEqual(["metrics of 2", "usage of 2"]);
  for (const l of leave) l();
});
