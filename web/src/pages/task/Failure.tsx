import { Button, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleX, ScrollText } from "lucide-react";
import { logSearch, logWindow } from "./api";
import { LogBuffer } from "./log/buffer";
import { cssOf, paint } from "./log/paint";
import css from "./log/log.module.css";
import { exitText, faultText, plainReason } from "./reasons";

export interface Ending {
  readonly outcome: string;
  readonly reason: string | undefined;
  readonly message: string | undefined;
  readonly exitCode: number | undefined;
}

const tailLines = 12;

/** Why an attempt failed: in plain words, with the last lines that it wrote to stderr, and the way to its first error. */
export function Failure({ task, attempt, ending }: { task: string; attempt: number; ending: Ending }) {
  const why = plainReason(ending.reason);
  const tail = useQuery({
    queryKey: ["task-tail", task, attempt],
    enabled: attempt > 0,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const last = async (stream: "all" | "stderr", bytes: number) => {
        const buffer = new LogBuffer();
        buffer.reset(await logWindow({ task, attempt, stream }, { direction: "backward", bytes }, signal));
        return buffer.lines.filter((l) => l.text.trim() !== "");
      };
      // What Muster itself said belongs to what the program wrote to stderr.
      const all = await last("all", 64 << 10);
      const errors = all.filter((l) => l.stream !== "stdout");
      if (errors.some((l) => l.stream === "stderr")) return { stderr: true, lines: errors.slice(-tailLines) };
      const stderr = await last("stderr", 8 << 10);
      if (stderr.length > 0) return { stderr: true, lines: [...stderr, ...errors].slice(-tailLines) };
      return { stderr: false, lines: all.slice(-tailLines) };
    },
  });
  const first = useQuery({
    queryKey: ["task-first-error", task, attempt],
    enabled: attempt > 0,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const found = await logSearch({ task, attempt, stream: "all" }, { q: "", regex: false, matchCase: false, errors: true }, { offset: 0, direction: "forward", limit: 1 }, signal);
      return found.matches?.[0]?.offset ?? null;
    },
  });
  return (
    <section className="card" aria-labelledby="failure" data-testid="failure" style={{ borderColor: "var(--state-failed)" }}>
      <Group gap={8} wrap="nowrap" align="flex-start">
        <CircleX size={18} aria-hidden style={{ flex: "none", marginTop: 2, color: "var(--state-failed)" }} />
        <Stack gap={4} style={{ minWidth: 0, flex: 1 }}>
          <Title order={2} id="failure">
            {ending.reason === "exit_code" && ending.exitCode !== undefined ? `The program ended with exit code ${exitText(ending.exitCode)}` : (why?.what ?? "It did not succeed")}
          </Title>
          {ending.message && !/^exit code \d+$/.test(ending.message) && <Text size="sm">{ending.message}</Text>}
          {why?.fix && (ending.reason !== "exit_code" || tail.data?.lines.length === 0) && <Text size="sm">{why.fix}</Text>}
          <Group gap="2px 16px" fz="sm" className="dim">
            {ending.reason && (
              <span>
                Reason <span className="mono">{ending.reason}</span>
                {why && `, ${faultText[why.fault]}`}
              </span>
            )}
            {ending.exitCode !== undefined && ending.reason !== "exit_code" && <span>Exit code {exitText(ending.exitCode)}</span>}
          </Group>
        </Stack>
      </Group>
      {tail.data && tail.data.lines.length > 0 && (
        <>
          <Text size="sm" c="dimmed" mt={12} mb={4}>
            Last lines of {tail.data.stderr ? "stderr" : "the output"}
          </Text>
          {/* It scrolls, so the keyboard must reach it. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          <pre className={`${css.panel} mono`} tabIndex={0} aria-label="Last lines" style={{ margin: 0, padding: "8px 10px", maxHeight: 260, overflow: "auto", fontSize: 12.5, lineHeight: "19px", display: "block", whiteSpace: "pre-wrap", overflowWrap: "anywhere", background: "var(--mantine-color-body)" }}>
            {tail.data.lines.map((l) => (
              <div key={`${l.offset}.${l.part}`}>
                {paint(l, []).map((p, i) => (
                  <span key={i} style={cssOf(p.style)}>
                    {p.text}
                  </span>
                ))}
              </div>
            ))}
          </pre>
        </>
      )}
      {attempt > 0 && (
        <Group gap="xs" mt={10}>
          {typeof first.data === "number" && (
            <Button component={Link} to="/tasks/$task" params={{ task } as never} search={{ tab: "log", attempt, at: first.data } as never} size="compact-sm" variant="default" leftSection={<ScrollText size={14} aria-hidden />}>
              Jump to the first error in the log
            </Button>
          )}
          <Button component={Link} to="/tasks/$task" params={{ task } as never} search={{ tab: "log", attempt, stream: "stderr" } as never} size="compact-sm" variant="subtle">
            All of stderr
          </Button>
        </Group>
      )}
    </section>
  );
}
