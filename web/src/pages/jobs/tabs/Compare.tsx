import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { GitCompareArrows } from "lucide-react";
import { useState } from "react";
import { get } from "@/api/client";
import { EmptyState } from "@/ui/feedback";
import type { TabProps } from "../job";
import page from "../job.module.css";
import { JobsCompared } from "../JobsCompared";
import { parseJobs } from "../model/compare";

/** Compares this job with others. */
export default function Compare({ job, search, set }: TabProps) {
  const [text, setText] = useState("");
  const others = parseJobs(search.with ?? "", job.id);
  const previous = useQuery({ ...get("/api/v1/jobs/{job}/previous", { params: { path: { job: String(job.id) } } }), retry: false, staleTime: 60_000 }).data;
  const add = (ids: readonly number[]) => {
    const next = [...new Set([...others, ...ids])].slice(0, 7);
    if (next.length > 0) set({ with: next.join(",") });
    setText("");
  };
  return (
    <>
      <form
        className={page.toolbar}
        onSubmit={(e) => {
          e.preventDefault();
          add(parseJobs(text, job.id));
        }}
      >
        <TextInput size="xs" value={text} onChange={(e) => setText(e.currentTarget.value)} placeholder="Job numbers, such as 12, 15" aria-label="Jobs to compare with" w={220} />
        <Button type="submit" size="xs" variant="default" disabled={parseJobs(text, job.id).length === 0}>
          Compare
        </Button>
        {previous && !others.includes(previous.id) && (
          <Button size="xs" variant="subtle" onClick={() => add([previous.id])}>
            Add the previous run, job {previous.id}
          </Button>
        )}
      </form>
      {others.length === 0 ? (
        <EmptyState icon={GitCompareArrows} title="Compare this job with others">
          Enter their numbers, or select jobs in the list and press Compare.
        </EmptyState>
      ) : (
        <JobsCompared ids={[job.id, ...others]} onRemove={(id) => set({ with: others.filter((o) => o !== id).join(",") || undefined })} />
      )}
    </>
  );
}
