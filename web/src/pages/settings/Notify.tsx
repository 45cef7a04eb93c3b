import { ActionIcon, Badge, Button, Group, Loader, MultiSelect, NativeSelect, Table, Text, TextInput, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus, Send, Trash2 } from "lucide-react";
import { useState } from "react";
import { client, data, get } from "@/api/client";
import type { components } from "@/api/schema";
import { CopyLine } from "@/ui/CopyLine";
import { ErrorState } from "@/ui/feedback";
import { LinkAnchor } from "@/ui/links";
import { plural, words } from "@/ui/format";
import { TimeAgo } from "@/ui/time";
import { act, toast } from "@/ui/toast";
import { FormDialog } from "./FormDialog";
import { ProjectHeading } from "./ProjectHeading";
import css from "./settings.module.css";

type Hook = components["schemas"]["Notify"];

const path = "/api/v1/projects/{project}/notify";
/** Webhooks that the server keeps of one project at most. */
const maxHooks = 10;
const events = [
  { value: "ended", label: "a job ended" },
  { value: "succeeded", label: "a job succeeded" },
  { value: "failed", label: "a job failed" },
  { value: "waiting_long", label: "a job waits long" },
];

/** The webhooks of a project, for keys that may manage them, and the log of what was sent. */
export function Notify({ project, fixed, manages }: { project: string; fixed: boolean; manages: boolean }) {
  return (
    <section className="card" aria-labelledby="notify">
      <ProjectHeading id="notify" of="Notifications" project={project} fixed={fixed} />
      {manages ? (
        <Hooks project={project} />
      ) : (
        <Text size="sm" c="dimmed">
          Webhooks are managed by administrators.
        </Text>
      )}
      <Log project={project} />
    </section>
  );
}

function Hooks({ project }: { project: string }) {
  const [adding, setAdding] = useState(false);
  const queries = useQueryClient();
  const params = { path: { project } };
  const hooks = useQuery({ ...get(path, { params }), placeholderData: undefined, retry: false });
  const list = hooks.data?.notify ?? [];

  const refresh = () => Promise.all([queries.invalidateQueries({ queryKey: [path] }), queries.invalidateQueries({ queryKey: ["/api/v1/notifications"] })]);
  const put = async (notify: readonly Hook[]) => {
    await data(client.PUT(path, { params, body: { notify: [...notify] } }));
    await refresh();
  };
  const test = async (url: string) => {
    const ran = await act("The test", async () => {
      const sent = await data(client.POST("/api/v1/projects/{project}/notify/test", { params, body: { url } }));
      await refresh();
      const failed = sent.deliveries.find((d) => d.state !== "delivered");
      if (failed) throw new Error(failed.error ?? `The receiver answered ${failed.status ?? "nothing"}`);
    });
    if (ran) toast.ok("The receiver accepted the test");
  };
  return (
    <>
      {hooks.error ? (
        <ErrorState error={hooks.error} retry={() => void hooks.refetch()} />
      ) : hooks.isPending ? (
        <Loader size="sm" aria-label="Loading" />
      ) : list.length === 0 ? (
        <Text size="sm" c="dimmed">
          No webhooks. Add one to have Slack, Discord, ntfy or your own service informed when jobs of this project end, fail or wait long. A job may have its own under <code>notify:</code>.
        </Text>
      ) : (
        <>
          <Table.ScrollContainer minWidth={560} type="native">
            <Table verticalSpacing={6}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>URL</Table.Th>
                  <Table.Th>Format</Table.Th>
                  <Table.Th>When</Table.Th>
                  <Table.Th>
                    <span className="hidden-visually">Actions</span>
                  </Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.map((h, i) => (
                  <Table.Tr key={`${h.url}-${i}`}>
                    <Table.Td maw={360}>
                      <div className="truncate mono" title={h.url}>
                        {h.url}
                      </div>
                    </Table.Td>
                    <Table.Td>{h.preset ?? "Muster"}</Table.Td>
                    <Table.Td>{(h.on ?? ["ended"]).map(words).join(", ")}</Table.Td>
                    <Table.Td>
                      <Group gap={2} justify="flex-end" wrap="nowrap">
                        <Tooltip label="Send a test">
                          <ActionIcon onClick={() => void test(h.url)} aria-label={`Send a test to ${h.url}`}>
                            <Send size={15} aria-hidden />
                          </ActionIcon>
                        </Tooltip>
                        <Tooltip label="Remove">
                          <ActionIcon onClick={() => void act("Remove", () => put(list.filter((_, n) => n !== i)), "The webhook is removed")} aria-label={`Remove ${h.url}`}>
                            <Trash2 size={15} aria-hidden />
                          </ActionIcon>
                        </Tooltip>
                      </Group>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
          <Text size="xs" c="dimmed" mt={8} mb={4}>
            Requests without a secret of their own are signed with this one (Standard Webhooks):
          </Text>
          <CopyLine text={hooks.data.signing_secret} prompt={false} label="Copy the signing secret" />
        </>
      )}
      {hooks.data && (
        <Button size="xs" mt={10} leftSection={<Plus size={14} aria-hidden />} onClick={() => setAdding(true)} disabled={list.length >= maxHooks}>
          Add webhook
        </Button>
      )}
      {adding && <AddHook onClose={() => setAdding(false)} onAdd={(h) => put([...list, h])} />}
    </>
  );
}

function AddHook({ onClose, onAdd }: { onClose: () => void; onAdd: (h: Hook) => Promise<void> }) {
  const [url, setURL] = useState("");
  const [preset, setPreset] = useState("");
  const [on, setOn] = useState<string[]>(["failed"]);
  const add = async () => {
    await onAdd({ url: url.trim(), on, ...(preset && { preset }) });
    onClose();
  };
  return (
    <FormDialog title="Add a webhook" action="Add the webhook" disabled={!url.trim() || on.length === 0} onSubmit={add} onClose={onClose}>
      <TextInput label="URL" type="url" placeholder="https://hooks.example.com/…" value={url} onChange={(e) => setURL(e.currentTarget.value)} required withAsterisk={false} data-autofocus />
      <NativeSelect
        label="Format"
        value={preset}
        onChange={(e) => setPreset(e.currentTarget.value)}
        data={[
          { value: "", label: "Muster's own JSON, signed" },
          { value: "slack", label: "Slack" },
          { value: "discord", label: "Discord" },
          { value: "ntfy", label: "ntfy" },
        ]}
      />
      <MultiSelect label="When" data={events} value={on} onChange={setOn} />
    </FormDialog>
  );
}

const colors = { delivered: "var(--state-succeeded)", failed: "var(--state-failed)", pending: "var(--state-queued)" } as const;

function Log({ project }: { project: string }) {
  const log = useQuery({ ...get("/api/v1/notifications", { params: { query: { project, limit: 20 } } }, { live: ["jobs"], every: 5_000 }), retry: false, refetchInterval: (q) => (q.state.data?.deliveries.some((d) => d.state === "pending") ? 5_000 : false) });
  const list = log.data?.deliveries ?? [];
  if (list.length === 0) return null;
  return (
    <>
      <h3 className={css.sub}>Last deliveries</h3>
      <Table.ScrollContainer minWidth={560} type="native" mah={320}>
        <Table verticalSpacing={4} fz="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>When</Table.Th>
              <Table.Th>Event</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th>To</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.map((d) => (
              <Table.Tr key={d.id}>
                <Table.Td>
                  <TimeAgo at={d.tried_at ?? d.created_at} />
                </Table.Td>
                <Table.Td className="nowrap">
                  {d.event}
                  {d.job && (
                    <>
                      {" "}
                      <LinkAnchor to="/jobs/$job" params={{ job: String(d.job) }} size="sm" underline="always">
                        {d.job}
                      </LinkAnchor>
                    </>
                  )}
                </Table.Td>
                <Table.Td>
                  <Badge variant="outline" color="gray" c={colors[d.state]} tt="none">
                    {d.state}
                  </Badge>{" "}
                  <span className="dim">
                    {[d.attempts > 1 && plural(d.attempts, "attempt"), d.error].filter(Boolean).join(", ")}
                    {d.next_at && d.attempts > 0 && (
                      <>
                        ; next attempt <TimeAgo at={d.next_at} />
                      </>
                    )}
                  </span>
                </Table.Td>
                <Table.Td className="mono">{d.host}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </>
  );
}
