import { Button, Checkbox, Group, Menu, Modal, Stack, Text, TextInput } from "@mantine/core";
import { CircleCheck, Ellipsis, HeartPulse, LogOut, Pause, Play, Trash2, type LucideIcon } from "lucide-react";
import { useRef, useState } from "react";
import { flushSync } from "react-dom";
import { messageOf } from "@/api/error";
import { queryClient } from "@/api/queries";
import { useCan } from "@/api/session";
import type { Worker } from "@/api/types";
import { plural } from "@/ui/format";
import { toast } from "@/ui/toast";
import { actionsOf, parseDuration, type Action } from "./model";
import { steer } from "./steer";
import css from "./workers.module.css";

interface Look {
  readonly verb: string;
  readonly icon: LucideIcon;
  readonly about: string;
  /** The label of the duration that may be given. */
  readonly duration?: string;
  readonly hint?: string;
  readonly danger?: boolean;
}

const looks: Record<Action, Look> = {
  approve: { verb: "Approve", icon: CircleCheck, about: "It gets tasks, and with them their files and variables." },
  drain: {
    verb: "Drain",
    icon: LogOut,
    about: "It finishes the tasks that it has, gets no new ones, and then leaves.",
    duration: "Stop what still runs after (optional)",
    hint: "such as 30m: tasks continue elsewhere, from their checkpoints if they have some",
  },
  pause: { verb: "Pause", icon: Pause, about: "It keeps its tasks and gets no new ones.", duration: "Resume after (optional)", hint: "such as 2h; empty: until it is resumed" },
  resume: { verb: "Resume", icon: Play, about: "It gets new tasks again." },
  heal: { verb: "Check GPUs", icon: HeartPulse, about: "It looks at its quarantined GPUs again. Those that are well are given to tasks again." },
  remove: { verb: "Remove", icon: Trash2, about: "The server forgets it and revokes its key. To come back it must join again.", danger: true },
};

/** Asks before an action on workers, carries it out on each, and says which failed. */
export function ActionDialog({ action, workers, onClose, onDone }: { action: Action | undefined; workers: readonly Worker[]; onClose: () => void; onDone?: (failed: readonly Worker[]) => void }) {
  const [duration, setDuration] = useState("");
  const [busy, setBusy] = useState(false);
  const [errors, setErrors] = useState<readonly string[]>([]);
  if (!action) return null;
  const look = looks[action];
  const able = workers.filter((w) => actionsOf(w).includes(action));
  const length = parseDuration(duration);
  const bad = duration.trim() !== "" && length === undefined;
  const leave = () => {
    setDuration("");
    setErrors([]);
    onClose();
  };
  // A failure after it is closed would have no place.
  const close = () => {
    if (!busy) leave();
  };
  const run = async () => {
    setBusy(true);
    setErrors([]);
    const failed: { worker: Worker; message: string }[] = [];
    for (const worker of able) {
      try {
        await steer(action, worker.id, { duration: length });
      } catch (e) {
        failed.push({ worker, message: `${worker.name}: ${messageOf(e)}` });
      }
    }
    setBusy(false);
    await queryClient.invalidateQueries({ queryKey: ["/api/v1/workers"] });
    onDone?.(failed.map((f) => f.worker));
    if (failed.length > 0) {
      setErrors(failed.map((f) => f.message));
      return;
    }
    toast.ok(`${look.verb}: ${able.length === 1 ? (able[0]?.name ?? "") : plural(able.length, "worker")}`);
    leave();
  };
  const one = able.length === 1 ? able[0] : undefined;
  return (
    <Modal opened onClose={close} closeButtonProps={{ "aria-label": "Close", disabled: busy }} title={one ? `${look.verb} ${one.name}?` : `${look.verb} ${plural(able.length, "worker")}?`}>
      <Stack>
        <Text size="sm">{look.about}</Text>
        {able.length < workers.length && (
          <Text size="sm" c="dimmed">
            {plural(workers.length - able.length, "selected worker")} cannot be changed so in their state, and {workers.length - able.length === 1 ? "is" : "are"} left alone.
          </Text>
        )}
        {look.duration && <TextInput label={look.duration} description={look.hint} value={duration} error={bad ? "Write a duration such as 90s, 10m, 1h30m or 7d" : undefined} onChange={(e) => setDuration(e.currentTarget.value)} />}
        {errors.length > 0 && (
          <Stack gap={4} role="alert">
            {errors.slice(0, 10).map((e) => (
              <Text key={e} size="sm" c="var(--state-failed)">
                {e}
              </Text>
            ))}
            {errors.length > 10 && <Text size="sm">… and {errors.length - 10} more</Text>}
          </Stack>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={close} disabled={busy}>
            Close
          </Button>
          <Button color={look.danger ? "red" : undefined} loading={busy} disabled={bad || able.length === 0} onClick={() => void run()} data-autofocus>
            {look.verb}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** The actions on one worker that its state and the key allow, as buttons. */
export function WorkerActions({ worker, menu = false }: { worker: Worker; menu?: boolean }) {
  const [action, setAction] = useState<Action>();
  const may = useCan("steer workers");
  const list = actionsOf(worker);
  if (!may || list.length === 0) return null;
  return (
    <>
      {menu ? (
        <ActionMenu name={worker.name} list={list} onChoose={setAction} />
      ) : (
        list.map((a) => {
          const Icon = looks[a].icon;
          return (
            <Button key={a} variant="default" leftSection={<Icon size={15} aria-hidden />} onClick={() => setAction(a)}>
              {looks[a].verb}
            </Button>
          );
        })
      )}
      <ActionDialog action={action} workers={[worker]} onClose={() => setAction(undefined)} />
    </>
  );
}

/** A button that opens the actions. The menu is made when it is opened first: a table has one for each row. */
function ActionMenu({ name, list, onChoose }: { name: string; list: readonly Action[]; onChoose: (action: Action) => void }) {
  const [made, setMade] = useState(false);
  const [opened, setOpened] = useState(false);
  const target = useRef<HTMLButtonElement>(null);
  const open = () => {
    flushSync(() => setMade(true));
    target.current?.focus(); // the menu returns the focus to where it was
    setOpened(true);
  };
  const button = (
    <button ref={target} type="button" className={css.menuButton} aria-label={`Actions on ${name}`} {...(!made && { "aria-haspopup": "menu", "aria-expanded": false, onClick: open })}>
      <Ellipsis size={16} aria-hidden />
    </button>
  );
  if (!made) return button;
  return (
    <Menu position="bottom-end" opened={opened} onChange={setOpened}>
      <Menu.Target>{button}</Menu.Target>
      <Menu.Dropdown>
        {list.map((a) => {
          const Icon = looks[a].icon;
          return (
            <Menu.Item key={a} leftSection={<Icon size={15} aria-hidden />} onClick={() => onChoose(a)}>
              {looks[a].verb}
            </Menu.Item>
          );
        })}
      </Menu.Dropdown>
    </Menu>
  );
}

/** The actions on the selected workers, in a bar. */
export function BulkActions({ workers, onDone, onClear }: { workers: readonly Worker[]; onDone: (failed: readonly Worker[]) => void; onClear: () => void }) {
  const [action, setAction] = useState<Action>();
  const possible = (Object.keys(looks) as Action[]).filter((a) => workers.some((w) => actionsOf(w).includes(a)));
  return (
    <Group gap="xs" role="toolbar" aria-label="Actions on the selected workers">
      <Checkbox size="xs" checked readOnly label={`${plural(workers.length, "worker")} selected`} onChange={onClear} />
      {possible.map((a) => (
        <Button key={a} size="xs" variant="default" color={looks[a].danger ? "red" : undefined} onClick={() => setAction(a)}>
          {looks[a].verb}
        </Button>
      ))}
      <ActionDialog action={action} workers={workers} onClose={() => setAction(undefined)} onDone={onDone} />
    </Group>
  );
}
