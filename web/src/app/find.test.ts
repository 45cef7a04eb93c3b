import { describe, expect, it } from "vitest";
import type { Job } from "@/api/types";
import { findJobs, joined, parseId } from "./find";

describe("find", () => {
  it("reads numbers of jobs and tasks", () => {
    expect(parseId("17")).toEqual({ job: 17 });
    expect(parseId(" #17 ")).toEqual({ job: 17 });
    expect(parseId("17.3")).toEqual({ job: 17, task: "17.3" });
    expect(parseId("task 17.003")).toEqual({ job: 17, task: "17.3" });
    expect(parseId("17.3.4")).toBeUndefined();
    expect(parseId("digits")).toBeUndefined();
  });

  it("finds jobs by all words and puts names that begin so first", () => {
    const job = (id: number, name: string, labels?: Record<string, string>) => ({ id, name, project: "default", ...(labels && { labels }) }) as Job;
    const jobs = [job(1, "eval-digits"), job(2, "digits"), job(3, "other", { team: "digits" }), job(4, "unrelated")];
    expect(findJobs(jobs, "digits", 8).map((j) => j.id)).toEqual([2, 1, 3]);
    expect(findJobs(jobs, "eval DIG", 8).map((j) => j.id)).toEqual([1]);
    expect(findJobs(jobs, "", 2).map((j) => j.id)).toEqual([1, 2]);
  });

  it("joins what it found among the newest with what the server found among all", () => {
    const jobs = [1, 2, 3, 4].map((id) => ({ id }) as Job);
    expect(joined(jobs.slice(0, 2), jobs.slice(1), 3).map((j) => j.id)).toEqual([1, 2, 3]);
  });
});
