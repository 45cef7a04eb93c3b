import { Badge, Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { CircleAlert, CircleCheck, Info, TriangleAlert } from "lucide-react";
import { useState } from "react";
import { client, data } from "@/api/client";
import { useCan } from "@/api/session";
import type { Attention } from "@/api/types";
import { ConfirmDialog } from "@/ui/ConfirmDialog";
import { CopyLine } from "@/ui/CopyLine";
import { count } from "@/ui/format";
import { LinkButton } from "@/ui/links";
import { act } from "@/ui/toast";
import css from "./overview.module.css";

const looks = {
  critical: { icon: CircleAlert, color: "var(--state-failed)", word: "Critical" },
  warning: { icon: TriangleAlert, color: "var(--state-cancelling)", word: "Warning" },
  info: { icon: Info, color: "var(--state-queued)", word: "Note" },
} as const;

/** Of each kind, this many are listed until the user asks for all. */
export const shownOfKind = 3;

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
      {total > items.length && (
        <Text size="xs" c="dimmed">
          The {count(items.length)} most severe of {count(total)}.
        </Text>
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
            {all ? "Show fewer" : `${count(items.length - shownOfKind)} more of this kind`}
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
        {item.message}
      </div>
      <Action item={item} />
    </li>
  );
}

/** The button that helps. What the key may not do is replaced by a link to the place where it shows. */
function Action({ item }: { item: Attention }) {
  const steer = useCan("steer workers");
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const worker = item.worker ?? "";
  const params = { path: { worker } };
  const after = () => queries.invalidateQueries({ queryKey: ["/api/v1/overview"] });
  const run = async (title: string, request: () => Promise<unknown>, done: string) => {
    if (await act(title, request, done)) await after();
  };
  const name = item.worker_name ?? worker;

  if (item.job && item.action === "open_job") {
    return (
      <LinkButton to="/jobs/$job" params={{ job: String(item.job) }} size="compact-xs" variant="default">
        Open job
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
  if (item.action === "free_disk" && !worker) {
    return (
      <>
        <Button size="compact-xs" variant="default" onClick={() => setAsking(true)}>
          Free disk
        </Button>
        <Modal opened={asking} onClose={() => setAsking(false)} title="Free disk space on the server">
          <Stack>
            <Text size="sm">{item.message}</Text>
            <Text size="sm">The server keeps the logs and artifacts of all jobs in its data folder. Enlarge that disk; or stop the server, move the folder to a larger disk, and start the server with its new path:</Text>
            <CopyLine text="muster server --data /path/on/larger/disk" />
          </Stack>
        </Modal>
      </>
    );
  }
  if (steer && worker) {
    switch (item.action) {
      case "heal":
        return (
          <Button size="compact-xs" variant="default" onClick={() => void run("Heal", () => data(client.POST("/api/v1/workers/{worker}/heal", { params, body: item.gpu ? { gpus: [item.gpu] } : {} })), `${name} checks its GPU again`)}>
            Check again
          </Button>
        );
      case "resume":
        return (
          <Button size="compact-xs" variant="default" onClick={() => void run("Resume", () => data(client.POST("/api/v1/workers/{worker}/resume", { params })), `${name} is resumed`)}>
            Resume
          </Button>
        );
      case "drain":
      case "remove": {
        const drain = item.action === "drain";
        return (
          <>
            <Button size="compact-xs" variant="default" onClick={() => setAsking(true)}>
              {drain ? "Drain" : "Remove"}
            </Button>
            <ConfirmDialog
              opened={asking}
              onClose={() => setAsking(false)}
              title={drain ? `Drain ${name}?` : `Remove ${name}?`}
              action={drain ? "Drain the worker" : "Remove the worker"}
              danger={!drain}
              onConfirm={async () => {
                await (drain ? data(client.POST("/api/v1/workers/{worker}/drain", { params, body: {} })) : data(client.DELETE("/api/v1/workers/{worker}", { params })));
                await after();
              }}
            >
              {drain ? "It finishes the tasks that it has, takes no new ones, and leaves." : "The server forgets the worker. It can join again with a join token."}
            </ConfirmDialog>
          </>
        );
      }
      default:
        break;
    }
  }
  if (!worker) return null;
  return (
    <LinkButton to="/workers/$worker" params={{ worker }} size="compact-xs" variant="default">
      Open worker
    </LinkButton>
  );
}
