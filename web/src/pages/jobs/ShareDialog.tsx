import { Button, Group, Modal, Select, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { json } from "@/api/client";
import { messageOf } from "@/api/error";
import type { Job } from "@/api/types";
import { CopyLine } from "@/ui/CopyLine";
import { dateTime } from "@/ui/format";

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
  const share = async () => {
    setBusy(true);
    setError("");
    try {
      setLink(await json<Shared>(`/api/v1/jobs/${job.id}/share`, { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify({ ttl }) }));
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal opened onClose={onClose} title={`Share job ${job.id}`} size="lg">
      <Stack>
        <Text size="sm">
          Anyone who has the link can read this job, its tasks, logs, results and files until it expires, and nothing else. They need no key. It can be revoked under Settings, Keys.
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
          <Button variant="default" onClick={onClose}>
            Close
          </Button>
          {!link && (
            <Button onClick={() => void share()} loading={busy}>
              Create the link
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
