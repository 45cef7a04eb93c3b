import { Button, CloseButton, Group, Loader, Modal, Stack, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Ban, CircleCheck, CircleX, GitCompareArrows, RotateCw } from "lucide-react";
import { useState } from "react";
import { client, data } from "@/api/client";
import { messageOf } from "@/api/error";
import type { Job } from "@/api/types";
import { plural } from "@/ui/format";
import { StateIcon } from "@/ui/StateBadge";
import { canCancel, canRetry } from "./actions";
import css from "./jobs.module.css";

type Verb = "cancel" | "retry";

/** What can be done with the selected jobs. */
export function BulkBar({ jobs, onClear }: { jobs: readonly Job[]; onClear: () => void }) {
  const navigate = useNavigate();
  const [verb, setVerb] = useState<Verb>();
  const cancel = jobs.filter(canCancel);
  const retry = jobs.filter(canRetry);
  return (
    <div className={css.bulk} role="region" aria-label="Selected jobs">
      <Text fw={600} size="sm" aria-live="polite">
        {plural(jobs.length, "job")} selected
      </Text>
      <Group gap={8} ml="auto">
        {jobs.length >= 2 && jobs.length <= 8 && (
          <Button size="xs" variant="default" component="a" href={`/compare?jobs=${jobs.map((j) => j.id).join(",")}`} onClick={(e) => {
              e.preventDefault();
              void navigate({ to: "/compare", search: { jobs: jobs.map((j) => j.id).join(",") } });
            }} leftSection={<GitCompareArrows size={14} aria-hidden />}>
            Compare
          </Button>
        )}
        <Button size="xs" variant="default" disabled={cancel.length === 0} onClick={() => setVerb("cancel")} leftSection={<Ban size={14} aria-hidden />}>
          Cancel {cancel.length > 0 && cancel.length < jobs.length ? cancel.length : ""}
        </Button>
        <Button size="xs" variant="default" disabled={retry.length === 0} onClick={() => setVerb("retry")} leftSection={<RotateCw size={14} aria-hidden />}>
          Retry {retry.length > 0 && retry.length < jobs.length ? retry.length : ""}
        </Button>
        <CloseButton aria-label="Clear the selection" onClick={onClear} />
      </Group>
      {verb && <BulkDialog verb={verb} jobs={verb === "cancel" ? cancel : retry} onClose={() => setVerb(undefined)} onDone={onClear} />}
    </div>
  );
}

type Outcome = { state: "waiting" | "busy" | "done" } | { state: "failed"; message: string };
/** Requests at a time. */
const parallel = 4;

/** Confirms an action on many jobs, takes it, and says for each how it ended. */
function BulkDialog({ verb, jobs, onClose, onDone }: { verb: Verb; jobs: readonly Job[]; onClose: () => void; onDone: () => void }) {
  // The list changes while the dialog is open; what was confirmed does not.
  const [items] = useState(jobs);
  const [outcomes, setOutcomes] = useState<ReadonlyMap<number, Outcome>>(new Map());
  const [phase, setPhase] = useState<"ask" | "run" | "end">("ask");
  const run = async () => {
    setPhase("run");
    const queue = items.filter((j) => outcomes.get(j.id)?.state !== "done");
    const set = (id: number, o: Outcome) => setOutcomes((before) => new Map(before).set(id, o));
    const work = async () => {
      for (let j = queue.shift(); j; j = queue.shift()) {
        set(j.id, { state: "busy" });
        try {
          const params = { params: { path: { job: String(j.id) } } };
          await (verb === "cancel" ? data(client.POST("/api/v1/jobs/{job}/cancel", params)) : data(client.POST("/api/v1/jobs/{job}/retry", params)));
          set(j.id, { state: "done" });
        } catch (e) {
          set(j.id, { state: "failed", message: messageOf(e) });
        }
      }
    };
    await Promise.all(Array.from({ length: parallel }, work));
    setPhase("end");
  };
  const failed = [...outcomes.values()].filter((o) => o.state === "failed").length;
  const close = () => {
    if (phase === "run") return;
    onClose();
    if (phase === "end" && failed === 0) onDone();
  };
  const what = plural(items.length, "job");
  return (
    <Modal opened onClose={close} title={verb === "cancel" ? `Cancel ${what}?` : `Retry ${what}?`} size="lg" withCloseButton={phase !== "run"}>
      <Stack>
        {phase === "ask" && <Text>{verb === "cancel" ? "Their running tasks are stopped, and those that wait will not start." : "Their tasks that ended without success are queued again. Those that succeeded keep their results."}</Text>}
        {phase === "end" && (
          <Text role="status" fw={600}>
            {failed === 0 ? `${verb === "cancel" ? "Cancelled" : "Queued again"}: ${what}` : `${plural(items.length - failed, "job")} of ${items.length} done, ${failed} failed`}
          </Text>
        )}
        {/* It scrolls, so the keyboard must reach it. */}
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
        <ul className={css.results} tabIndex={0} aria-label="Jobs">
          {items.map((j) => {
            const o = outcomes.get(j.id);
            return (
              <li key={j.id}>
                {o?.state === "done" ? <CircleCheck size={16} color="var(--state-succeeded)" aria-label="done" /> : o?.state === "failed" ? <CircleX size={16} color="var(--state-failed)" aria-label="failed" /> : o?.state === "busy" ? <Loader size={14} aria-label="in progress" /> : <StateIcon state={j.state} />}
                <span className="dim">{j.id}</span>
                <span className="truncate" style={{ flex: 1 }} title={j.name}>
                  {j.name}
                </span>
                {o?.state === "failed" && (
                  <Text size="sm" c="var(--state-failed)" ta="right">
                    {o.message}
                  </Text>
                )}
              </li>
            );
          })}
        </ul>
        <Group justify="flex-end">
          {phase !== "end" && (
            <Button variant="default" onClick={close} disabled={phase === "run"}>
              Keep
            </Button>
          )}
          {phase === "end" && failed === 0 ? (
            <Button onClick={close} data-autofocus>
              Close
            </Button>
          ) : (
            <>
              {phase === "end" && (
                <Button variant="default" onClick={close}>
                  Close
                </Button>
              )}
              <Button color={verb === "cancel" ? "red" : undefined} loading={phase === "run"} onClick={() => void run()} data-autofocus>
                {phase === "end" ? "Try the failed ones again" : verb === "cancel" ? `Cancel ${what}` : `Retry ${what}`}
              </Button>
            </>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
