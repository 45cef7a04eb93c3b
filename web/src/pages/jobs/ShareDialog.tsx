import { Button, Group, Modal, Select, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { client, data, json } from "@/api/client";
import { messageOf } from "@/api/error";
import { useCan } from "@/api/session";
import type { Job } from "@/api/types";
import { CopyLine } from "@/ui/CopyLine";
import { dateTime } from "@/ui/format";
import { toast } from "@/ui/toast";

interface Shared {
  url: string;
  expires_at?: string;
}

const ttls = [
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "24 hours" },
  { value: "168h", label: "7 days" },
  { value: "720h", label: "30 days" },
];

/** Makes a link with which anyone can read this one job until it expires. */
export default function ShareDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [ttl, setTTL] = useState("24h");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const [link, setLink] = useState<Shared>();
  const mayRevokeOne = useCan("manage keys");
  const attempt = async (action: () => Promise<void>) => {
    setBusy(true);
    setError("");
    try {
      await action();
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };
  const share = async () => setLink(await json<Shared>(`/api/v1/jobs/${job.id}/share`, { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify({ ttl }) }));
  const revoke = async () => {
    await data(client.DELETE("/api/v1/jobs/{job}/share", { params: { path: { job: String(job.id) } } }));
    setLink(undefined);
    toast.ok(`All links of job ${job.id} are revoked`);
  };
  return (
    // The link is shown only once: a click outside of the dialog must not lose it.
    <Modal opened onClose={onClose} closeOnClickOutside={!link} closeOnEscape={!link} title={`Share job ${job.id}`} size="lg">
      <Stack>
        <Text size="sm">
          Anyone who has the link can read this job, its tasks, logs, results and files until it expires, and nothing else. They need no key. All links of the job can be revoked here{mayRevokeOne && ", and a single one under Settings, API keys"}.
        </Text>
        {link ? (
          <>
            <CopyLine text={new URL(link.url, location.origin).href} label="Copy the link" prompt={false} />
            <Text size="sm" c="dimmed" role="status">
              {link.expires_at ? `Expires ${dateTime(link.expires_at)}. ` : ""}It is shown only now.
            </Text>
          </>
        ) : (
          <Select label="Expires after" data={ttls} value={ttl} onChange={(v) => v && setTTL(v)} allowDeselect={false} />
        )}
        {error && (
          <Text c="var(--state-failed)" size="sm" role="alert">
            {error}
          </Text>
        )}
        <Group justify="flex-end">
          <Button variant="subtle" color="red" mr="auto" disabled={busy} onClick={() => void attempt(revoke)}>
            Revoke all links of this job
          </Button>
          <Button variant="default" onClick={onClose}>
            Close
          </Button>
          {!link && (
            <Button onClick={() => void attempt(share)} loading={busy}>
              Create the link
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
