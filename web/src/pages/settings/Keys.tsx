import { ActionIcon, Button, Group, Loader, Modal, NativeSelect, Stack, Table, Text, TextInput, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { client, data, get } from "@/api/client";
import { useSession } from "@/api/session";
import type { Key } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { CopyLine } from "@/ui/CopyLine";
import { ErrorState } from "@/ui/feedback";
import { TimeAgo } from "@/ui/time";
import { FormDialog } from "./FormDialog";
import css from "./settings.module.css";

const roles = [
  { value: "viewer", label: "viewer: sees jobs and workers, changes nothing" },
  { value: "submitter", label: "submitter: submits, cancels and retries jobs" },
  { value: "join", label: "join: adds workers, nothing else" },
  { value: "operator", label: "operator: runs the fleet, cancels and removes jobs, submits none" },
  { value: "admin", label: "admin: everything" },
] as const;
/** Keys of these roles are for all projects. */
const fleetWide: readonly string[] = ["join", "operator"];
type NewRole = (typeof roles)[number]["value"];

const lifetimes = [
  { value: "", label: "never" },
  { value: "24h", label: "in a day" },
  { value: "7d", label: "in a week" },
  { value: "30d", label: "in 30 days" },
  { value: "365d", label: "in a year" },
] as const;

/** API keys: list, make, revoke. Keys of workers are made by joining, and are not listed unless asked for. */
export function Keys() {
  const { me } = useSession();
  const queries = useQueryClient();
  const keys = useQuery(get("/api/v1/keys", {}));
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Key>();
  const [workers, setWorkers] = useState(false);
  const refresh = () => queries.invalidateQueries({ queryKey: ["/api/v1/keys"] });

  const all = keys.data?.keys ?? [];
  const ofWorkers = all.filter((k) => k.role === "worker").length;
  const shown = all.filter((k) => workers || k.role !== "worker");
  return (
    <section className="card" aria-labelledby="keys">
      <Group justify="space-between" mb={8}>
        <h2 id="keys" className={css.heading} style={{ margin: 0 }}>
          API keys
        </h2>
        <Button size="xs" leftSection={<Plus size={14} aria-hidden />} onClick={() => setMaking(true)}>
          New key
        </Button>
      </Group>
      {keys.error ? (
        <ErrorState error={keys.error} retry={() => void keys.refetch()} />
      ) : keys.isPending ? (
        <Loader size="sm" aria-label="Loading" />
      ) : (
        <Table.ScrollContainer minWidth={620} type="native">
          <Table verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th>Role</Table.Th>
                <Table.Th>Project</Table.Th>
                <Table.Th>Created</Table.Th>
                <Table.Th>Last used</Table.Th>
                <Table.Th>Expires</Table.Th>
                <Table.Th>
                  <span className="hidden-visually">Actions</span>
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {shown.map((k) => (
                <Table.Tr key={k.id}>
                  <Table.Td maw={260}>
                    <div className="truncate" title={k.name}>
                      {k.name}
                    </div>
                    <span className="mono dim">{k.prefix ? `${k.prefix}…` : k.id}</span>
                    {k.rotated_to && <span className="dim"> · old secret</span>}
                    {k.id === me?.key && <span className="dim"> · this session, so only another key can revoke it</span>}
                  </Table.Td>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{k.role}</Table.Td>
                  <Table.Td>{k.project ?? "all"}</Table.Td>
                  <Table.Td>
                    <TimeAgo at={k.created_at} />
                  </Table.Td>
                  <Table.Td title={k.last_used_from && `from ${k.last_used_from}`}>{k.last_used_at ? <TimeAgo at={k.last_used_at} /> : "-"}</Table.Td>
                  <Table.Td>{k.expires_at ? <TimeAgo at={k.expires_at} /> : "never"}</Table.Td>
                  <Table.Td ta="right">
                    {k.id !== me?.key && (
                      <Tooltip label="Revoke the key">
                        <ActionIcon onClick={() => setRevoking(k)} aria-label={`Revoke ${k.name}`}>
                          <Trash2 size={16} aria-hidden />
                        </ActionIcon>
                      </Tooltip>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      {ofWorkers > 0 && (
        <Button variant="subtle" size="xs" mt={6} onClick={() => setWorkers(!workers)}>
          {workers ? "Hide the keys of workers" : `Show ${ofWorkers} ${ofWorkers === 1 ? "key" : "keys"} of workers`}
        </Button>
      )}
      {making && <NewKey onClose={() => setMaking(false)} onMade={refresh} />}
      <ConfirmDialog
        opened={revoking !== undefined}
        onClose={() => setRevoking(undefined)}
        title={`Revoke ${revoking?.name ?? ""}?`}
        action="Revoke the key"
        danger
        onConfirm={async () => {
          await data(client.DELETE("/api/v1/keys/{key}", { params: { path: { key: revoking?.id ?? "" } } }));
          await refresh();
        }}
      >
        Whatever uses the key is refused at once.
      </ConfirmDialog>
    </section>
  );
}

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: () => Promise<unknown> }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<NewRole>("viewer");
  const [project, setProject] = useState("");
  const [ttl, setTTL] = useState("");
  const [secret, setSecret] = useState("");
  const { me } = useSession();
  const offered = roles.filter((r) => !me?.project || !fleetWide.includes(r.value));
  const bound = fleetWide.includes(role) ? "" : project.trim();
  const make = async () => {
    const made = await data(client.POST("/api/v1/keys", { body: { name: name.trim(), role, ...(bound && { project: bound }), ...(ttl && { ttl }) } }));
    setSecret(made.secret);
    await onMade();
  };
  if (secret) {
    return (
      <Modal opened onClose={onClose} title="The new key" closeOnClickOutside={false}>
        <Stack>
          <Text size="sm">Copy the key now: it is not shown again.</Text>
          <CopyLine text={secret} prompt={false} label="Copy the key" />
          <Button onClick={onClose}>Done</Button>
        </Stack>
      </Modal>
    );
  }
  return (
    <FormDialog title="New API key" action="Create the key" icon={<KeyRound size={15} aria-hidden />} disabled={!name.trim()} onSubmit={make} onClose={onClose}>
      <TextInput label="Name" placeholder="ci-pipeline" maxLength={64} value={name} onChange={(e) => setName(e.currentTarget.value)} required withAsterisk={false} data-autofocus />
      <NativeSelect label="Role" data={offered.map((r) => ({ ...r }))} value={role} onChange={(e) => setRole(e.currentTarget.value as NewRole)} />
      {!me?.project && !fleetWide.includes(role) && <TextInput label="Project" description="The only project that the key may touch; empty means all" maxLength={64} value={project} onChange={(e) => setProject(e.currentTarget.value)} />}
      <NativeSelect label="Expires" data={lifetimes.map((l) => ({ ...l }))} value={ttl} onChange={(e) => setTTL(e.currentTarget.value)} />
    </FormDialog>
  );
}
