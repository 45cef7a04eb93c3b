import { ActionIcon, Alert, Button, FileInput, Group, Loader, PasswordInput, Table, Text, TextInput, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Lock, Plus, RotateCw, Trash2, TriangleAlert } from "lucide-react";
import { useRef, useState, type SyntheticEvent } from "react";
import { client, data, get } from "@/api/client";
import type { Secret } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { ErrorState } from "@/ui/feedback";
import { TimeAgo } from "@/ui/time";
import { FormDialog } from "./FormDialog";
import { ProjectHeading } from "./ProjectHeading";

const path = "/api/v1/projects/{project}/secrets";
/** Bytes of a value: at least without white space around it, and at most. */
const minSize = 8;
const maxSize = 64 << 10;

/** The secrets of a project, for keys that may manage them: list, set, delete. The server returns no values. */
export function Secrets({ project, fixed }: { project: string; fixed: boolean }) {
  const queries = useQueryClient();
  const secrets = useQuery({ ...get(path, { params: { path: { project } } }), placeholderData: undefined });
  const [adding, setAdding] = useState(false);
  const [changing, setChanging] = useState<Secret>();
  const [deleting, setDeleting] = useState<Secret>();
  const refresh = () => queries.invalidateQueries({ queryKey: [path] });
  const list = secrets.data?.secrets ?? [];
  return (
    <section className="card" aria-labelledby="secrets">
      <ProjectHeading id="secrets" of="Secrets" project={project} fixed={fixed} />
      {secrets.error ? (
        <ErrorState error={secrets.error} retry={() => void secrets.refetch()} />
      ) : secrets.isPending ? (
        <Loader size="sm" aria-label="Loading" />
      ) : list.length === 0 ? (
        <Text size="sm" c="dimmed">
          No secrets. A secret is a value such as a token, which is stored encrypted and never shown. Tasks that name it under <code>secrets:</code> get it as a variable or a file.
        </Text>
      ) : (
        <Table.ScrollContainer minWidth={640} type="native">
          <Table verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th className="nowrap">Workers</Table.Th>
                <Table.Th className="nowrap">Last set</Table.Th>
                <Table.Th>By</Table.Th>
                <Table.Th className="nowrap">Version</Table.Th>
                <Table.Th>
                  <span className="hidden-visually">Actions</span>
                </Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.map((s) => (
                <Table.Tr key={s.name}>
                  <Table.Td maw={240}>
                    <div className="truncate mono" title={s.name}>
                      {s.name}
                    </div>
                    {s.problem && (
                      <Text size="xs" c="var(--state-failed)">
                        {s.problem}
                      </Text>
                    )}
                  </Table.Td>
                  <Table.Td>{s.workers && s.workers.length > 0 ? s.workers.join(", ") : "all"}</Table.Td>
                  <Table.Td>
                    <TimeAgo at={s.updated_at} />
                  </Table.Td>
                  <Table.Td maw={160}>
                    <div className="truncate" title={s.updated_by}>
                      {s.updated_by}
                    </div>
                  </Table.Td>
                  <Table.Td>{s.version}</Table.Td>
                  <Table.Td>
                    <Group gap={2} justify="flex-end" wrap="nowrap">
                      <Tooltip label="Set a new value">
                        <ActionIcon onClick={() => setChanging(s)} aria-label={`Set a new value of ${s.name}`}>
                          <RotateCw size={15} aria-hidden />
                        </ActionIcon>
                      </Tooltip>
                      <Tooltip label="Delete the secret">
                        <ActionIcon onClick={() => setDeleting(s)} aria-label={`Delete ${s.name}`}>
                          <Trash2 size={16} aria-hidden />
                        </ActionIcon>
                      </Tooltip>
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      {secrets.data && (
        <Button size="xs" mt={10} leftSection={<Plus size={14} aria-hidden />} onClick={() => setAdding(true)}>
          New secret
        </Button>
      )}
      {adding && <SetSecret project={project} names={list.map((s) => s.name)} onClose={() => setAdding(false)} onSet={refresh} />}
      {changing && <SetSecret project={project} secret={changing} onClose={() => setChanging(undefined)} onSet={refresh} />}
      <ConfirmDialog
        opened={deleting !== undefined}
        onClose={() => setDeleting(undefined)}
        title={`Delete ${deleting?.name ?? ""}?`}
        action="Delete the secret"
        danger
        onConfirm={async () => {
          await data(client.DELETE(`${path}/{secret}`, { params: { path: { project, secret: deleting?.name ?? "" } } }));
          await refresh();
        }}
      >
        Tasks that name it fail when they would start. Running tasks keep its value.
      </ConfirmDialog>
    </section>
  );
}

/** Reads a file with a value, each of its bytes. */
async function valueOf(file: File): Promise<string> {
  if (file.size > maxSize) throw new Error(`${file.name} is larger than 64 KiB, the most that a secret may have`);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await file.arrayBuffer());
  } catch (e) {
    if (e instanceof TypeError) throw new Error(`${file.name} is not text in UTF-8: encode it, for example with base64, and decode it in the task`, { cause: e });
    throw new Error(`${file.name} cannot be read: choose it again`, { cause: e });
  }
}

/**
 * Sets a secret of the project: a new one, or a new value of one that it has. The value is in its field only, which is emptied when the
 * request has ended: neither the component's state nor a cache of requests has it.
 */
function SetSecret({ project, secret, names = [], onClose, onSet }: { project: string; secret?: Secret; names?: readonly string[]; onClose: () => void; onSet: () => Promise<unknown> }) {
  const [name, setName] = useState(secret?.name ?? "");
  const [workers, setWorkers] = useState((secret?.workers ?? []).join(", "));
  const [file, setFile] = useState<File | null>(null);
  const [wrong, setWrong] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const exists = names.includes(name.trim());

  const set = async () => {
    const value = file ? await valueOf(file) : (field.current?.value ?? "");
    if (new TextEncoder().encode(value.trim()).length < minSize) {
      setWrong("A value has at least 8 bytes: a shorter one cannot be hidden in logs");
      return;
    }
    const tags = workers.split(/[\s,]+/).filter(Boolean);
    try {
      await data(client.PUT(`${path}/{secret}`, { params: { path: { project, secret: name.trim() } }, body: { value, ...(tags.length > 0 && { workers: tags }) } }));
    } finally {
      if (field.current) field.current.value = "";
    }
    await onSet();
    onClose();
  };
  // A password field drops line breaks, which a private key needs.
  const oneLine = (e: SyntheticEvent, text: string) => {
    if (!/[\r\n]/.test(text.trim())) return;
    e.preventDefault();
    setWrong("The text has several lines, and this field takes one: choose a file that has it");
  };
  return (
    <FormDialog title={secret ? `New value of ${secret.name}` : `New secret of project ${project}`} action="Set the secret" icon={<Lock size={15} aria-hidden />} disabled={!name.trim() || exists} onSubmit={set} onClose={onClose}>
      {!window.isSecureContext && (
        <Alert color="yellow" variant="light" icon={<TriangleAlert size={18} aria-hidden />} c="var(--mantine-color-text)">
          This page was opened without TLS: the value can be read on the network between here and the server.
        </Alert>
      )}
      {!secret && (
        <TextInput
          label="Name"
          placeholder="HF_TOKEN"
          description="Letters, digits and _, not a digit first"
          maxLength={64}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          error={exists && "The project has this secret: set a new value of it in the list"}
          required
          withAsterisk={false}
          data-autofocus
        />
      )}
      <PasswordInput
        ref={field}
        label="Value"
        description="8 bytes to 64 KiB of text; it is not shown again"
        autoComplete="new-password"
        spellCheck={false}
        disabled={file !== null}
        error={!file && wrong}
        onChange={() => setWrong("")}
        onPaste={(e) => oneLine(e, e.clipboardData.getData("text"))}
        onDrop={(e) => oneLine(e, e.dataTransfer.getData("text"))}
        data-autofocus={secret ? true : undefined}
      />
      <FileInput
        label="Or a file that has the value"
        placeholder="Choose a file"
        styles={{ placeholder: { color: "var(--mantine-color-dimmed)" } }}
        description="Every byte of it counts, also a line break at the end"
        clearable
        clearButtonProps={{ "aria-label": "Remove the file" }}
        value={file}
        error={file && wrong}
        onChange={(f) => {
          setFile(f);
          setWrong("");
          if (f && field.current) field.current.value = "";
        }}
      />
      <TextInput label="Workers (optional)" placeholder="trusted, eu" description="Only workers with all of these tags get the secret; empty means all" value={workers} onChange={(e) => setWorkers(e.currentTarget.value)} />
    </FormDialog>
  );
}
