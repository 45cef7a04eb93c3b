import { Badge, Button, Group, Modal, Stack, Text } from "@mantine/core";
import { CircleAlert, CircleCheck, Info, TriangleAlert } from "lucide-react";
import { useState, type ReactNode } from "react";
import { queryClient } from "@/api/queries";
import { useCan } from "@/api/session";
import type { Attention } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { CopyLine } from "@/ui/CopyLine";
import { count, localTimes } from "@/ui/format";
import { LinkButton } from "@/ui/links";
import { act, toast } from "@/ui/toast";
import { download } from "../workers/lines";
import { constrainedHelp } from "../workers/model";
import type { WorkersSearch } from "../workers/search";
import { healGPU, steer } from "../workers/steer";
import css from "./overview.module.css";

const looks = {
  critical: { icon: CircleAlert, color: "var(--state-failed)", word: "Critical" },
  warning: { icon: TriangleAlert, color: "var(--state-cancelling)", word: "Warning" },
  info: { icon: Info, color: "var(--state-queued)", word: "Note" },
} as const;

/** Of each kind, this many are listed until the user asks for all. */
export const shownOfKind = 3;

/** The number of problems in rows: a row of the server may represent many that it does not list. */
export const things = (items: readonly Attention[]) => items.reduce((sum, a) => sum + (a.more ?? 1), 0);

/** Items of one kind together, in the order of the server: the most severe first. */
export function byKind(items: readonly Attention[]): Attention[][] {
  const groups = new Map<string, Attention[]>();
  for (const a of items) {
    const key = `${a.severity} ${a.kind}`;
    const group = groups.get(key);
    if (group) group.push(a);
    else groups.set(key, [a]);
  }
  return [...groups.values()];
}

/** What needs a person, the most severe first, each with what helps most. */
export function AttentionList({ items, total }: { items: readonly Attention[]; total: number }) {
  return (
    <section className="card" aria-labelledby="attention">
      <Group justify="space-between" mb={items.length > 0 ? 6 : 0}>
        <h2 id="attention" className={css.heading}>
          Needs attention
        </h2>
        {total > 0 && (
          <Badge variant="light" color="gray" c="var(--mantine-color-text)">
            {count(total)}
          </Badge>
        )}
      </Group>
      {items.length === 0 ? (
        <Text size="sm" c="dimmed" className={css.iconLine} mt={6}>
          <CircleCheck size={16} color="var(--state-succeeded)" aria-hidden /> Nothing needs attention
        </Text>
      ) : (
        <ul className={css.attention}>
          {byKind(items).map((group) => (
            <Kind key={`${group[0]?.severity ?? ""}-${group[0]?.kind ?? ""}`} items={group} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Kind({ items }: { items: readonly Attention[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? items : items.slice(0, shownOfKind);
  return (
    <>
      {shown.map((a, i) => (
        <Item key={`${a.worker ?? ""}-${a.job ?? ""}-${a.gpu ?? ""}-${i}`} item={a} />
      ))}
      {items.length > shownOfKind && (
        <li className={css.more}>
          <Button variant="subtle" size="compact-xs" onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `${count(things(items.slice(shownOfKind)))} more of this kind`}
          </Button>
        </li>
      )}
    </>
  );
}

function Item({ item }: { item: Attention }) {
  const look = looks[item.severity];
  return (
    <li className={css.attentionItem}>
      <look.icon size={16} color={look.color} aria-hidden style={{ flex: "none", marginTop: 2 }} />
      <div style={{ minWidth: 0, flex: 1 }}>
        <span className="hidden-visually">{look.word}: </span>
        {localTimes(item.message)}
      </div>
      <Action item={item} />
    </li>
  );
}

/** The filter of the page of workers that shows those of a kind. */
export function workersOf(kind: Attention["kind"]): WorkersSearch {
  switch (kind) {
    case "worker_unreachable":
      return { state: "unreachable" };
    case "worker_lost":
      return { state: "gone" };
    case "worker_paused":
      return { state: "paused" };
    default:
      return { attention: true };
  }
}

/** The button that helps. What the key may not do is replaced by a link to the place where it shows. */
function Action({ item }: { item: Attention }) {
  const may = useCan("steer workers");
  if (item.job) {
    return (
      <LinkButton to="/jobs/$job" params={{ job: String(item.job) }} size="compact-xs" variant="default">
        Open job
      </LinkButton>
    );
  }
  if (item.action === "list_jobs") {
    return (
      <LinkButton to="/jobs" search={{ state: ["running", "failed"] }} size="compact-xs" variant="default">
        Show jobs
      </LinkButton>
    );
  }
  if (item.action === "list_workers") {
    return (
      <LinkButton to="/workers" search={workersOf(item.kind)} size="compact-xs" variant="default">
        Show workers
      </LinkButton>
    );
  }
  if (item.action === "open_docs") {
    return (
      <LinkButton to="/settings" hash="gateways" size="compact-xs" variant="default">
        Show gateways
      </LinkButton>
    );
  }
  const { worker } = item;
  if (!worker) {
    return item.action === "free_disk" ? (
      <Help label="Free disk" title="Free disk space on the server">
        <Text size="sm">{item.message}</Text>
        <Text size="sm">The server keeps the logs and artifacts of all jobs in its data folder. Enlarge that disk; or stop the server, move the folder to a larger disk, and start the server with its new path:</Text>
        <CopyLine text="muster server --data /path/on/larger/disk" />
      </Help>
    ) : null;
  }
  const name = item.worker_name ?? worker;
  if (item.action === "free_disk") {
    return (
      <Help label="Free disk" title={`Free disk space on ${name}`}>
        <Text size="sm">{item.message} When less than its --min-free-disk is free, it takes no new tasks.</Text>
        <Text size="sm">Its data folder has the files of its tasks, and caches of inputs and images, within the limits of its options --cache and --image-disk. Delete other files on that disk, enlarge it, or start the worker with lower limits.</Text>
      </Help>
    );
  }
  if (item.kind === "worker_constrained") {
    return (
      <Help label="What to do" title={`${name} takes no tasks now`}>
        <Text size="sm">{localTimes(item.message)}</Text>
        <Text size="sm">{constrainedHelp}</Text>
        <LinkButton to="/workers/$worker" params={{ worker }} size="compact-sm" variant="default" style={{ alignSelf: "start" }}>
          Open worker
        </LinkButton>
      </Help>
    );
  }
  if (may) {
    switch (item.action) {
      case "heal":
        return <Now label="Check again" title={`Check the GPU of ${name}`} run={() => (item.gpu ? healGPU(worker, item.gpu) : steer("heal", worker))} done={`The GPU of ${name} is well, and is given to tasks again`} />;
      case "resume":
        return <Now label="Resume" title={`Resume ${name}`} run={() => steer("resume", worker)} done={`${name} takes tasks again`} />;
      case "remove":
        return <Remove worker={worker} name={name} />;
      case "upgrade":
        return (
          <Help label="Upgrade" title={`Upgrade ${name}`}>
            <Text size="sm">{item.message}</Text>
            <Text size="sm">On its machine, put the program of this server in the place of the old one. MUSTER_TOKEN is a join token or an administrator&apos;s key:</Text>
            <CopyLine text={download(location.origin, "$MUSTER_TOKEN", '"$(command -v muster)"', "muster.new")} />
            <Text size="sm">Then let the worker start the new program in place, with one of these. Its tasks keep running:</Text>
            <CopyLine text="systemctl reload muster-worker" />
            <CopyLine text="kill -USR2 WORKER_PID" />
          </Help>
        );
      default:
    }
  }
  return (
    <LinkButton to="/workers/$worker" params={{ worker }} size="compact-xs" variant="default">
      Open worker
    </LinkButton>
  );
}

const refresh = () => queryClient.invalidateQueries({ queryKey: ["/api/v1/overview"] });

/** Does something at once, and says how it ended. */
function Now({ label, title, run, done }: { label: string; title: string; run: () => Promise<void>; done: string }) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    await act(title, run, done);
    await refresh();
    setBusy(false);
  };
  return (
    <Button size="compact-xs" variant="default" loading={busy} onClick={() => void click()}>
      {label}
    </Button>
  );
}

function Remove({ worker, name }: { worker: string; name: string }) {
  const [asking, setAsking] = useState(false);
  return (
    <>
      <Button size="compact-xs" variant="default" onClick={() => setAsking(true)}>
        Remove
      </Button>
      <ConfirmDialog
        opened={asking}
        onClose={() => setAsking(false)}
        title={`Remove ${name}?`}
        action="Remove the worker"
        danger
        onConfirm={async () => {
          await steer("remove", worker);
          toast.ok(`${name} is removed`);
          await refresh();
        }}
      >
        The server forgets the worker and revokes its key. To come back it must join again.
      </ConfirmDialog>
    </>
  );
}

/** What a person has to do elsewhere. */
function Help({ label, title, children }: { label: string; title: string; children: ReactNode }) {
  const [opened, setOpened] = useState(false);
  return (
    <>
      <Button size="compact-xs" variant="default" onClick={() => setOpened(true)}>
        {label}
      </Button>
      <Modal opened={opened} onClose={() => setOpened(false)} title={title} size="lg">
        <Stack>{children}</Stack>
      </Modal>
    </>
  );
}
