import { Button, Group, Menu, Text, Title } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { FileCode2, FormInput, KeyRound, Lock, Send } from "lucide-react";
import { lazy, Suspense, useMemo, useRef, useState } from "react";
import { apiFetch, client, data, json } from "@/api/client";
import { ApiError, type FieldError } from "@/api/error";
import { newKey } from "@/api/idempotency";
import { useCan } from "@/api/session";
import type { Explanation, Job } from "@/api/types";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { plural } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { toast } from "@/ui/toast";
import { toYAML } from "@/ui/yaml";
import type { Schema } from "./complete";
import { draft, useDraft } from "./draft";
import { examples, hello } from "./examples";
import { Folder } from "./Folder";
import { KindForm } from "./KindForm";
import { Plan } from "./Plan";
import type { SubmitSearch } from "./search";
import { SecretsForm } from "./SecretsForm";
import { setIn, taskPath } from "./spec";
import css from "./submit.module.css";

const Editor = lazy(() => import("./Editor"));
const route = getRouteApi("/submit");

/** The spec to begin with: of an earlier job or task, of an example, or of the first example. */
async function beginning({ from, example }: SubmitSearch): Promise<string> {
  if (from) return toYAML(await earlier(from));
  return examples.find((e) => e.name === example)?.text ?? hello;
}

/** What a draft belongs to: the job, task or example that it began with. */
const draftOf = ({ from, example }: SubmitSearch) => (from ? `from ${from}` : example ? `example ${example}` : "new");

async function earlier(from: string): Promise<unknown> {
  const number = from.split(".")[0] ?? from;
  const job = await data(client.GET("/api/v1/jobs/{job}", { params: { path: { job: number } } }));
  if (!from.includes(".")) return job.spec && { ...job.spec, signature: undefined }; // it is valid for that job only
  const { spec } = await data(client.GET("/api/v1/tasks/{task}/spec", { params: { path: { task: from } } }));
  const kept = { name: job.name, project: job.project, priority: job.priority, ...(job.labels && { labels: job.labels }) };
  return { ...kept, tasks: [alone(spec)] };
}

/** One element of a stage as a task of its own: without what makes the others, and what other stages gave. */
function alone(spec: object): object {
  return Object.fromEntries(Object.entries(spec).filter(([name]) => !["array", "matrix", "needs", "inputs", "signed_by"].includes(name)));
}

export default function SubmitPage() {
  const search = route.useSearch();
  const { from } = search;
  const may = useCan("submit jobs");
  const of = draftOf(search);
  const start = useQuery({ queryKey: ["submit", of], queryFn: () => beginning(search), staleTime: Infinity, gcTime: 0 });
  if (!may) {
    return (
      <>
        <PageHeader title="Submit" />
        <EmptyState icon={Lock} title="This key may not submit jobs">
          Sign in with a key whose role is submitter or admin.
        </EmptyState>
      </>
    );
  }
  return (
    <>
      <PageHeader title="Submit" badge={from && <Text c="dimmed">as {from}, with changes</Text>} />
      {start.isError && <ErrorState error={start.error} retry={() => void start.refetch()} />}
      {start.data !== undefined && <Form key={of} draftOf={of} original={start.data} />}
    </>
  );
}

interface Check {
  readonly text: string;
  readonly stages?: readonly Explanation[];
  readonly errors: readonly FieldError[];
  readonly error?: Error;
}

const headers = { "Content-Type": "application/yaml", Accept: "application/json" };

/** Lets the server check a text: its errors have lines and columns. */
async function checkText(text: string, signal: AbortSignal): Promise<Check> {
  try {
    const plan = await json<{ stages: Explanation[] }>("/api/v1/plan", { method: "POST", body: text, headers, signal });
    return { text, stages: plan.stages, errors: [] };
  } catch (e) {
    if (e instanceof ApiError && e.errors.length > 0) return { text, errors: e.errors };
    throw e;
  }
}

function Form({ draftOf: of, original }: { draftOf: string; original: string }) {
  const [initial] = useState(() => draft.load(of) ?? original);
  const [text, setText] = useState(initial);
  const [settled] = useDebouncedValue(text, 500);
  const endDraft = useDraft(of, original, initial, text, settled);
  const [busy, setBusy] = useState(false);
  const [form, setForm] = useState<"kind" | "secrets">();
  const [refused, setRefused] = useState<Check>();
  const navigate = useNavigate();
  // An idempotency key for each text: a second click, or one after a lost answer, makes no second job.
  const key = useRef({ text: "", value: "" });

  const schema = useQuery({ queryKey: ["schema"], queryFn: () => json<Schema>("/api/v1/schemas/job.json"), staleTime: Infinity, retry: false });
  const check = useQuery({ queryKey: ["plan", settled], queryFn: ({ signal }) => checkText(settled, signal), gcTime: 60_000, staleTime: 15_000, retry: false, placeholderData: (old) => old });

  const current = refused?.text === text ? refused : check.data;
  const outdated = current !== undefined && current.text !== text;
  const errors = useMemo(() => (current?.text === text ? current.errors : []), [current, text]);

  const submit = async () => {
    if (busy) return;
    setBusy(true);
    if (key.current.text !== text) key.current = { text, value: newKey() };
    try {
      const response = await apiFetch(new URL("/api/v1/jobs", location.origin), { method: "POST", body: text, headers: { ...headers, "Idempotency-Key": key.current.value } });
      const job = (await response.json()) as Job;
      endDraft();
      toast.ok(`Job ${job.id} is submitted`);
      await navigate({ to: "/jobs/$job", params: { job: String(job.id) } });
    } catch (e) {
      if (e instanceof ApiError && e.errors.length > 0) setRefused({ text, errors: e.errors });
      else toast.fail("The job was not submitted", e);
    } finally {
      setBusy(false);
    }
  };

  const actions = (
    <Group gap="xs" className={css.actions}>
      <Menu position="bottom-start">
        <Menu.Target>
          <Button variant="default" leftSection={<FileCode2 size={16} aria-hidden />}>
            Examples
          </Button>
        </Menu.Target>
        <Menu.Dropdown maw={420}>
          {examples.map((e) => (
            <Menu.Item key={e.name} onClick={() => setText(e.text)}>
              <Text size="sm" fw={600}>
                {e.name}
              </Text>
              <Text size="xs" c="dimmed">
                {e.about}
              </Text>
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
      <Button variant="default" leftSection={<FormInput size={16} aria-hidden />} onClick={() => setForm("kind")}>
        Kinds
      </Button>
      <Button variant="default" leftSection={<KeyRound size={16} aria-hidden />} onClick={() => setForm("secrets")}>
        Secrets
      </Button>
      <Button leftSection={<Send size={16} aria-hidden />} loading={busy} onClick={() => void submit()}>
        Submit
      </Button>
    </Group>
  );
  return (
    <Folder text={text} onText={setText} actions={actions}>
      <KindForm
        opened={form === "kind"}
        onClose={() => setForm(undefined)}
        onApply={(kind, input) => {
          const path = taskPath(text);
          setText(setIn(setIn(setIn(text, [...path, "run"], undefined), [...path, "kind"], kind), [...path, "input"], input));
        }}
      />
      <SecretsForm opened={form === "secrets"} onClose={() => setForm(undefined)} text={text} onText={setText} />
      {initial !== original && text !== original && (
        <Group gap="xs" mb="sm">
          <Text size="sm">This is the draft that you wrote here before.</Text>
          <Button size="compact-xs" variant="default" onClick={() => setText(original)}>
            Discard it
          </Button>
        </Group>
      )}
      <div className={css.columns}>
        <div className={css.editor}>
          <Suspense fallback={<div aria-busy="true" />}>
            <Editor value={text} onChange={setText} schema={schema.data} errors={errors} onSubmit={() => void submit()} />
          </Suspense>
        </div>
        <aside className={`card ${css.side}`} aria-label="Check of the spec" aria-live="polite">
          <Title order={2} mb="xs">
            {errors.length > 0 ? plural(errors.length, "error") : "Plan"}
          </Title>
          {errors.map((e, i) => (
            <Text key={i} size="sm" mb="xs">
              <span className="mono" style={{ color: "var(--state-failed)" }}>
                {e.line ? `line ${e.line}` : "the spec"}
                {e.path && ` ${e.path}`}
              </span>
              : {e.message}
              {e.hint && ` (${e.hint})`}
            </Text>
          ))}
          {errors.length === 0 && check.isError && <ErrorState error={check.error} retry={() => void check.refetch()} />}
          {errors.length === 0 && current?.stages && (
            // The plan of the text as it was, until the next check answers.
            <div aria-busy={outdated}>
              <Plan stages={current.stages} />
            </div>
          )}
          <Text size="xs" c="dimmed" mt="md">
            {outdated && errors.length === 0 && !check.isError
              ? "Checking the spec. The plan is that of the text before."
              : "The draft is kept in this browser. Ctrl-Space completes, Ctrl-Enter submits."}
          </Text>
        </aside>
      </div>
    </Folder>
  );
}
