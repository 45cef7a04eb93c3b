import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { CircleCheck, CircleX, Hourglass, Lightbulb } from "lucide-react";
import { useState } from "react";
import { get } from "@/api/client";
import type { Explanation } from "@/api/types";
import { ErrorState } from "@/ui/feedback";
import { count, dateTime, localTimes, plural, sentence } from "@/ui/format";
import { TimeAgo } from "@/ui/time";
import { WorkerLink } from "@/ui/WorkerLink";
import { filterText, groupVerdicts } from "./verdicts";

/** Why a task that has not started waits, worker by worker, and what would help. */
export function Explain({ task }: { task: string }) {
  const { data, error, refetch } = useQuery({
    ...get("/api/v1/tasks/{task}/explain", { params: { path: { task } } }, { live: [`task:${task}`, "workers"], every: 2_000 }),
    refetchInterval: 5_000,
  });
  if (error && !data) return <ErrorState error={error} retry={() => void refetch()} title="Why it waits is not known" />;
  if (!data) return null;
  return <Explained explanation={data} />;
}

function Explained({ explanation: x }: { explanation: Explanation }) {
  const groups = groupVerdicts(x.workers ?? []);
  return (
    <section className="card" aria-labelledby="why" data-testid="explain">
      <Group gap={8} wrap="nowrap" align="flex-start">
        <Hourglass size={18} aria-hidden style={{ flex: "none", marginTop: 2, color: "var(--state-queued)" }} />
        <Stack gap={6} style={{ minWidth: 0 }}>
          <Title order={2} id="why">
            Why is it waiting?
          </Title>
          <Text>{sentence(localTimes(x.summary))}</Text>
          {x.waiting && x.waiting.length > 0 && (
            <Text size="sm">
              Needs {x.waiting.length === 1 ? "stage" : "stages"} <b>{x.waiting.join(", ")}</b> first.
            </Text>
          )}
          {x.nearest && (
            <Group gap={6} wrap="nowrap" align="flex-start" data-testid="nearest">
              <Lightbulb size={16} aria-hidden style={{ flex: "none", marginTop: 2, color: "var(--state-cancelling)" }} />
              <Text size="sm">
                <b>Nearest fix:</b> {sentence(localTimes(x.nearest))}
              </Text>
            </Group>
          )}
          <Group gap="4px 18px" className="dim" fz="sm">
            {x.position !== undefined && (x.ahead > 0 || x.start) && (
              <span>
                Place {count(x.position)}
                {x.beyond ? " or later" : ""} in the queue{x.ahead > 0 ? `, ${count(x.ahead)}${x.beyond ? " or more" : ""} ahead` : ", next"}
              </span>
            )}
            {x.start && <span title={dateTime(x.start)}>Starts about <TimeAgo at={x.start} /></span>}
            {x.not_until && <span title={dateTime(x.not_until)}>Not tried again until <TimeAgo at={x.not_until} /></span>}
          </Group>
        </Stack>
      </Group>
      {groups.length > 0 && (
        <Stack gap={0} mt={10}>
          {groups.map((g) => (
            <VerdictGroup key={g.filter} group={g} />
          ))}
          {x.more !== undefined && x.more > 0 && (
            <Text size="sm" c="dimmed" mt={6}>
              {plural(x.more, "more worker")} not listed.
            </Text>
          )}
        </Stack>
      )}
    </section>
  );
}

const mark = { flex: "none", alignSelf: "center" };

function VerdictGroup({ group: g }: { group: ReturnType<typeof groupVerdicts>[number] }) {
  const [all, setAll] = useState(false);
  const shown = all ? g.workers : g.workers.slice(0, 4);
  return (
    <details open={g.workers.length <= 8} style={{ borderTop: "1px solid var(--line)", padding: "8px 0" }}>
      <summary style={{ cursor: "pointer" }}>
        <Group gap={8} component="span" display="inline-flex" wrap="nowrap" align="baseline" maw="calc(100% - 24px)" style={{ verticalAlign: "top" }}>
          {g.fits ? <CircleCheck size={15} aria-hidden color="var(--state-succeeded)" style={mark} /> : <CircleX size={15} aria-hidden color="var(--state-failed)" style={mark} />}
          <Text component="span" size="sm" fw={600}>
            {filterText(g.filter)}
          </Text>
          <Text component="span" size="sm" c="dimmed" style={{ whiteSpace: "nowrap" }}>
            {plural(g.workers.length, "worker")}
          </Text>
        </Group>
      </summary>
      <Stack gap={3} mt={6} pl={23} component="ul" style={{ listStyle: "none", margin: 0 }}>
        {shown.map((v) => (
          <Text key={v.worker} size="sm" component="li">
            <WorkerLink id={v.worker} name={v.name} underline="always" />
            {v.why ? `: ${localTimes(v.why)}` : g.fits ? ": could take it" : ""}
          </Text>
        ))}
        {!all && g.workers.length > shown.length && (
          <li>
            <Anchor component="button" type="button" size="sm" onClick={() => setAll(true)}>
              Show {g.workers.length - shown.length} more
            </Anchor>
          </li>
        )}
      </Stack>
    </details>
  );
}
