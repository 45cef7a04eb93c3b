import { ActionIcon, Button, Menu } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Ban, Copy, Download, EllipsisVertical, GitCompareArrows, Pencil, RotateCw, Share2 } from "lucide-react";
import { lazy, Suspense, useState } from "react";
import { client, data } from "@/api/client";
import { newKey } from "@/api/idempotency";
import { useCan, useSession } from "@/api/session";
import type { Job } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { plural } from "@/ui/format";
import { act, toast } from "@/ui/toast";
import { alive, canCancel, canRetry, retriable } from "./actions";
import { download, fileName } from "./model/csv";

const ShareDialog = lazy(() => import("./ShareDialog"));

/** What can be done with a job, as far as the key may and its state allows. */
export function JobActions({ job }: { job: Job }) {
  const navigate = useNavigate();
  const mayChange = useCan("cancel, retry or edit jobs");
  const maySubmit = useCan("submit jobs");
  const { me } = useSession();
  const [asked, setAsked] = useState<"cancel" | "retry" | "again">();
  // One for each time that the dialog opens: a second press after a lost answer makes no second job.
  const [key, setKey] = useState("");
  const [sharing, setSharing] = useState(false);
  const path = { params: { path: { job: String(job.id) } } };
  const stops = mayChange && canCancel(job);
  const retries = mayChange && canRetry(job);

  const askAgain = () => {
    setKey(newKey());
    setAsked("again");
  };
  const again = async () => {
    if (!job.spec) throw new Error("The server did not send the job's spec. Load the page again.");
    const made = await data(client.POST("/api/v1/jobs", { body: { ...job.spec, signature: undefined } as never, params: { header: { "Idempotency-Key": key } } }));
    if (!made) throw new Error("The server did not say which job it made. Look at the list of jobs.");
    toast.ok(`Job ${made.id} is submitted`);
    await navigate({ to: "/jobs/$job", params: { job: String(made.id) } });
  };
  const save = () =>
    act("Download", async () => {
      const { toYAML } = await import("@/ui/yaml");
      download(`${fileName(job.name, job.id)}.yaml`, toYAML(job.spec), "application/yaml");
    });
  return (
    <>
      {stops && (
        <Button variant="default" leftSection={<Ban size={15} aria-hidden />} onClick={() => setAsked("cancel")}>
          Cancel
        </Button>
      )}
      {retries && (
        <Button variant="default" leftSection={<RotateCw size={15} aria-hidden />} onClick={() => setAsked("retry")}>
          Retry {plural(retriable(job.counts), "task")}
        </Button>
      )}
      {maySubmit && !stops && (
        <Button variant="default" leftSection={<Copy size={15} aria-hidden />} onClick={askAgain}>
          Run again
        </Button>
      )}
      <Menu position="bottom-end" width={240}>
        <Menu.Target>
          <ActionIcon size="lg" variant="default" aria-label="More actions">
            <EllipsisVertical size={17} aria-hidden />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {maySubmit && stops && (
            <Menu.Item leftSection={<Copy size={15} aria-hidden />} onClick={askAgain}>
              Run again
            </Menu.Item>
          )}
          {maySubmit && (
            <Menu.Item leftSection={<Pencil size={15} aria-hidden />} onClick={() => void navigate({ to: "/submit", search: { from: String(job.id) } })}>
              Run again with changes
            </Menu.Item>
          )}
          {mayChange && (
            <Menu.Item leftSection={<Share2 size={15} aria-hidden />} onClick={() => setSharing(true)}>
              Share a read-only link
            </Menu.Item>
          )}
          {!me?.job && (
            <Menu.Item leftSection={<GitCompareArrows size={15} aria-hidden />} onClick={() => void navigate({ to: "/jobs/$job", params: { job: String(job.id) }, search: { tab: "compare" } })}>
              Compare with other jobs
            </Menu.Item>
          )}
          <Menu.Item leftSection={<Download size={15} aria-hidden />} onClick={() => void save()} disabled={!job.spec}>
            Download the spec
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
      <ConfirmDialog
        opened={asked === "cancel"}
        onClose={() => setAsked(undefined)}
        title={`Cancel job ${job.id}?`}
        action="Cancel the job"
        danger
        onConfirm={async () => {
          await data(client.POST("/api/v1/jobs/{job}/cancel", path));
          toast.ok(`Job ${job.id} is being cancelled`);
        }}
      >
        {plural(alive(job.counts), "task")} of <strong>{job.name}</strong> {alive(job.counts) === 1 ? "has" : "have"} not ended: what runs is stopped, and what waits will not start.
      </ConfirmDialog>
      <ConfirmDialog
        opened={asked === "retry"}
        onClose={() => setAsked(undefined)}
        title={`Retry the failed tasks of job ${job.id}?`}
        action={`Retry ${plural(retriable(job.counts), "task")}`}
        onConfirm={async () => {
          await data(client.POST("/api/v1/jobs/{job}/retry", path));
          toast.ok(`Tasks of job ${job.id} are queued again`);
        }}
      >
        Tasks that failed, timed out, were cancelled or skipped are queued again. Those that succeeded keep their results.
      </ConfirmDialog>
      <ConfirmDialog opened={asked === "again"} onClose={() => setAsked(undefined)} title="Run the job again?" action="Submit" onConfirm={again}>
        A new job with the same spec and files is submitted. Job {job.id} stays as it is.
      </ConfirmDialog>
      {sharing && (
        <Suspense>
          <ShareDialog job={job} onClose={() => setSharing(false)} />
        </Suspense>
      )}
    </>
  );
}
