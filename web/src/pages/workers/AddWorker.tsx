import { Alert, Button, Group, Loader, Modal, SegmentedControl, Select, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleCheck, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { client, data, get } from "@/api/client";
import { messageOf } from "@/api/error";
import { useSession } from "@/api/session";
import type { Worker } from "@/api/types";
import { CopyLine } from "@/ui/CopyLine";
import { bytes, count, plural } from "@/ui/format";
import { fits, joinLines, onlyHere, osOf, type Arch, type GPUMaker, type Machine, type System } from "./lines";
import { connected, size } from "./model";
import css from "./workers.module.css";

/** In seconds. */
const lifetimes = [
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
  { value: "7776000", label: "90 days" },
];

interface Made {
  readonly secret: string;
  /** When it was made, by the server's clock: workers that joined later are new. */
  readonly at: string;
}

/** Makes a join token, shows what to paste on the new machine, and waits until it has joined. */
export function AddWorker({ opened, onClose }: { opened: boolean; onClose: () => void }) {
  const [made, setMade] = useState<Made>();
  const close = () => {
    setMade(undefined);
    onClose();
  };
  // The token is shown once: a click outside of the dialog must not lose it.
  return (
    <Modal opened={opened} onClose={close} title="Add a worker" size="xl" closeOnClickOutside={!made} closeOnEscape={!made}>
      {opened && <Steps made={made} onMade={setMade} onClose={close} />}
    </Modal>
  );
}

function Steps({ made, onMade, onClose }: { made: Made | undefined; onMade: (m: Made) => void; onClose: () => void }) {
  const program = useSession().me?.download;
  const [system, setSystem] = useState<System>("linux");
  const [chosen, setChosen] = useState<Arch>();
  const [gpus, setGPUs] = useState<GPUMaker>("nvidia");
  const [name, setName] = useState("");
  const [server, setServer] = useState(location.origin);
  const [ttl, setTTL] = useState("86400");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");

  const make = async () => {
    setBusy(true);
    setError("");
    try {
      const answer = await data(client.POST("/api/v1/keys", { body: { name: name.trim() || "new worker", role: "join", ttl: Number(ttl) } }));
      onMade({ secret: answer.secret, at: answer.key.created_at ?? new Date().toISOString() });
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };

  let url: string | undefined;
  try {
    url = new URL(server).origin;
  } catch {
    url = undefined;
  }
  // A Mac is an ARM machine most often; others are most often like the server.
  const usual = program?.os === osOf(system) ? program.arch : system === "macos" ? "arm64" : "amd64";
  const machine: Machine = { system, arch: chosen ?? (usual === "arm64" ? "arm64" : "amd64"), gpus };
  return (
    <Stack>
      <Group grow align="flex-start">
        <TextInput
          label="Server"
          description="As the new machine reaches it"
          value={server}
          error={url ? undefined : "Write a URL such as http://lab.example:8700"}
          onChange={(e) => setServer(e.currentTarget.value)}
        />
        <TextInput label="Name (optional)" description="Default: the machine's host name" value={name} onChange={(e) => setName(e.currentTarget.value)} />
        {!made && <Select label="The token is valid for" description="To join; the worker stays" data={lifetimes} value={ttl} allowDeselect={false} onChange={(v) => setTTL(v ?? "86400")} />}
      </Group>
      {url && onlyHere(url) && (
        <Alert color="yellow" variant="light" icon={<TriangleAlert size={18} aria-hidden />} title={<Text fw={600} c="var(--mantine-color-text)">Only this machine reaches that address</Text>}>
          <Text size="sm" c="var(--mantine-color-text)">
            For others start the server with <span className="mono">--listen :8700</span> and open the dashboard by the machine&apos;s name or address, or write it above.
          </Text>
        </Alert>
      )}
      {error && (
        <Text c="var(--state-failed)" role="alert">
          {error}
        </Text>
      )}
      {!made && (
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button loading={busy} disabled={!url} onClick={() => void make()} data-autofocus>
            Create a join token
          </Button>
        </Group>
      )}
      {made && url && (
        <>
          <Group gap="sm">
            <SegmentedControl
              aria-label="System of the new machine"
              value={system}
              onChange={(v) => setSystem(v)}
              data={[
                { value: "linux", label: "Linux" },
                { value: "macos", label: "macOS" },
                { value: "container", label: "Container" },
                { value: "systemd", label: "systemd" },
              ]}
            />
            <SegmentedControl
              aria-label="Processor of the new machine"
              value={machine.arch}
              onChange={(v) => setChosen(v)}
              data={[
                { value: "amd64", label: "x86-64" },
                { value: "arm64", label: "ARM64" },
              ]}
            />
            {system === "container" && (
              <SegmentedControl
                aria-label="GPUs that the container is given"
                value={gpus}
                onChange={(v) => setGPUs(v)}
                data={[
                  { value: "nvidia", label: "NVIDIA" },
                  { value: "amd", label: "AMD" },
                  { value: "none", label: "No GPUs" },
                ]}
              />
            )}
          </Group>
          {!fits(machine, program) && (
            <Text size="sm">
              {program ? `This server has the program for ${program.os}/${program.arch} only. ` : "This server does not say for which system it has the program. "}
              Build it for {osOf(system)}/{machine.arch} from the source of Muster, or copy it from a machine of that system that has it.
            </Text>
          )}
          {system === "container" && gpus === "nvidia" && (
            <Text size="sm">The machine needs NVIDIA&apos;s container toolkit. Without it Docker refuses to start the container: choose No GPUs.</Text>
          )}
          {joinLines(machine, { server: url, token: made.secret, name: name.trim() }, program).map((line, i) => (
            <div key={line.title} className={css.step} data-testid="join-line">
              <Text size="sm">
                {i + 1}. {line.title}
              </Text>
              <CopyLine text={line.text} prompt={!line.text.includes("\n")} />
            </div>
          ))}
          <Text size="sm" c="dimmed">
            The token is shown this once. It can only join workers, until it expires; revoke it in Settings.
          </Text>
          <Joined since={made.at} onClose={onClose} />
        </>
      )}
    </Stack>
  );
}

/** Workers that joined since a time, as they join. */
function Joined({ since, onClose }: { since: string; onClose: () => void }) {
  const query = useQuery({ ...get("/api/v1/workers", { params: { query: { view: "basic" } } }, { live: ["workers"] }), refetchInterval: 3_000 });
  const fresh = (query.data?.workers ?? []).filter((w) => connected(w) && w.joined_at !== undefined && Date.parse(w.joined_at) >= Date.parse(since));
  if (fresh.length === 0) {
    return (
      <Group gap="sm" role="status">
        <Loader size="xs" aria-hidden />
        <Text size="sm">Waiting for the worker to join …</Text>
        {query.isError && (
          <Text size="sm" c="var(--state-failed)">
            {messageOf(query.error)}
          </Text>
        )}
      </Group>
    );
  }
  return (
    <Alert color="teal" variant="light" icon={<CircleCheck size={18} aria-hidden />} title={<Text fw={600} c="var(--mantine-color-text)">{fresh.length === 1 ? "The worker has joined" : `${count(fresh.length)} workers have joined`}</Text>} role="status">
      <Stack gap={4}>
        {fresh.map((w) => (
          <Text key={w.id} size="sm" c="var(--mantine-color-text)">
            <Link to="/workers/$worker" params={{ worker: w.id }} className="link">
              {w.name}
            </Link>
            : {hardware(w)}
          </Text>
        ))}
        <Group justify="flex-end">
          <Button size="xs" onClick={onClose}>
            Done
          </Button>
        </Group>
      </Stack>
    </Alert>
  );
}

function hardware(w: Worker): string {
  const gpus = w.resources.gpus ?? [];
  return [plural(w.resources.cpus, "core"), bytes(size(w.resources.memory)), gpus.length > 0 ? `${gpus.length} × ${gpus[0]?.name ?? "GPU"}` : "no GPU"].join(", ");
}
