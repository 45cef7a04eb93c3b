import { Button, Checkbox, Group, Loader, Modal, NativeSelect, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "@/api/client";
import { messageOf } from "@/api/error";
import { useCan, useSession } from "@/api/session";
import type { Secret } from "@/api/types";
import { ErrorState } from "@/ui/feedback";
import { plural } from "@/ui/format";
import { LinkAnchor } from "@/ui/links";
import { readSecrets, writeSecrets, type TaskSecrets, type Use } from "./secrets";
import css from "./submit.module.css";

interface Props {
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly onClose: () => void;
}

/** Chooses which secrets of the spec's project its tasks get, and how. */
export function SecretsForm({ opened, ...props }: Props & { opened: boolean }) {
  return (
    <Modal opened={opened} onClose={props.onClose} title="Secrets of a task" size="lg" closeButtonProps={{ "aria-label": "Close" }}>
      {opened && <Read {...props} />}
    </Modal>
  );
}

function Read(props: Props) {
  const { me } = useSession();
  let spec: ReturnType<typeof readSecrets>;
  try {
    spec = readSecrets(props.text);
  } catch (e) {
    return (
      <Text c="var(--state-failed)" role="alert">
        {messageOf(e)}
      </Text>
    );
  }
  return <Form {...props} project={spec.project ?? me?.project ?? "default"} tasks={spec.tasks} />;
}

function Form({ text, onText, onClose, project, tasks }: Props & { project: string; tasks: readonly TaskSecrets[] }) {
  const manages = useCan("manage secrets");
  const secrets = useQuery({ ...get("/api/v1/projects/{project}/secrets", { params: { path: { project } } }), placeholderData: undefined });
  const [at, setAt] = useState(0);
  const [edited, setEdited] = useState<Readonly<Record<number, ReadonlyMap<string, Use>>>>({});
  const [tried, setTried] = useState(false);
  const [failed, setFailed] = useState("");
  if (secrets.isError) return <ErrorState error={secrets.error} retry={() => void secrets.refetch()} />;
  if (secrets.isPending) return <Loader size="sm" aria-label="Loading" />;

  const stored = secrets.data.secrets;
  const uses = edited[at] ?? tasks[at]?.uses ?? new Map<string, Use>();
  // What the task names, but the project does not have, can be removed.
  const missing = [...(tasks[at]?.uses.keys() ?? [])].filter((name) => !stored.some((s) => s.name === name));
  const others = tasks[at]?.others ?? 0;
  const apply = () => {
    setTried(true);
    const incomplete = Object.entries(edited).find(([, of]) => [...of.values()].some((u) => u.file?.trim() === ""));
    if (incomplete) {
      setAt(Number(incomplete[0]));
      return;
    }
    try {
      onText(Object.entries(edited).reduce((t, [i, of]) => writeSecrets(t, tasks[Number(i)]?.path ?? [], of), text));
      onClose();
    } catch (e) {
      setFailed(messageOf(e));
    }
  };
  return (
    <Stack>
      {tasks.length > 1 && <NativeSelect label="Task" data={tasks.map((t, i) => ({ value: String(i), label: t.name }))} value={String(at)} onChange={(e) => setAt(Number(e.currentTarget.value))} />}
      {stored.length + missing.length === 0 ? (
        <Text size="sm">
          Project {project} has no secrets.{" "}
          {manages ? (
            <LinkAnchor to="/settings" search={{ project }} size="sm" underline="always">
              Set them under Settings
            </LinkAnchor>
          ) : (
            "An administrator of the project can set them."
          )}
        </Text>
      ) : (
        <>
          <Text size="sm" c="dimmed">
            The task gets the values; its logs and results have *** in their place. A file is in the task&apos;s folder and is no output.
          </Text>
          <ul className={css.secrets}>
            {[...missing, ...stored].map((s) => {
              const name = typeof s === "string" ? s : s.name;
              return (
                <Row key={name} name={name} about={typeof s === "string" ? { wrong: `Project ${project} has no such secret` } : aboutOf(s)} use={uses.get(name) ?? { variable: false }} tried={tried} onChange={(use) => setEdited({ ...edited, [at]: new Map([...uses, [name, use]]) })} />
              );
            })}
          </ul>
        </>
      )}
      {others > 0 && (
        <Text size="sm" c="dimmed">
          {plural(others, "entry", "entries")} with another variable, a registry or a second file: change {others === 1 ? "it" : "them"} in the editor.
        </Text>
      )}
      {failed && (
        <Text c="var(--state-failed)" size="sm" role="alert">
          {failed}
        </Text>
      )}
      <Group justify="flex-end">
        <Button disabled={Object.keys(edited).length === 0} onClick={apply}>
          Write it to the spec
        </Button>
      </Group>
    </Stack>
  );
}

interface About {
  readonly wrong?: string | undefined;
  readonly note?: string | false | undefined;
}

const aboutOf = (s: Secret): About => ({ wrong: s.problem, note: (s.workers ?? []).length > 0 && `only on workers with ${(s.workers ?? []).join(", ")}` });

function Row({ name, about, use, tried, onChange }: { name: string; about: About; use: Use; tried: boolean; onChange: (use: Use) => void }) {
  return (
    <li>
      <div className="truncate mono" title={name}>
        {name}
      </div>
      {about.note && (
        <Text size="xs" c="dimmed">
          {about.note}
        </Text>
      )}
      {about.wrong && (
        <Text size="xs" c="var(--state-failed)">
          {about.wrong}
        </Text>
      )}
      <Group gap="md" mt={4} align="flex-start">
        <Checkbox label="Variable" aria-label={`Variable ${name}`} checked={use.variable} onChange={(e) => onChange({ ...use, variable: e.currentTarget.checked })} className={css.box} />
        <Checkbox label="File" aria-label={`File with ${name}`} checked={use.file !== undefined} onChange={(e) => onChange({ variable: use.variable, ...(e.currentTarget.checked && { file: "" }) })} className={css.box} />
        {use.file !== undefined && (
          <TextInput
            size="xs"
            aria-label={`Path of the file with ${name}`}
            placeholder=".ssh/id_ed25519"
            value={use.file}
            onChange={(e) => onChange({ ...use, file: e.currentTarget.value })}
            error={tried && use.file.trim() === "" && "A path in the task's folder is needed"}
            style={{ flex: "1 1 200px" }}
          />
        )}
      </Group>
    </li>
  );
}
