import { Center, Loader, SegmentedControl, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Navigate } from "@tanstack/react-router";
import { Plus, Send, Server } from "lucide-react";
import { history as historyOf, useGPUs, useOverview } from "@/api/hooks";
import { useCan, useSession } from "@/api/session";
import { total } from "@/api/types";
import { CopyLine } from "@/ui/CopyLine";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { LinkButton } from "@/ui/links";
import { PageHeader } from "@/ui/PageHeader";
import { AttentionList } from "./Attention";
import { Capacity } from "./Capacity";
import { Heatmap } from "./Heatmap";
import css from "./overview.module.css";
import { spans, type Span } from "./search";
import { Tasks } from "./Tasks";
import { Tiles } from "./Tiles";

const route = getRouteApi("/");

/** What the fleet is doing. A key of a shared link reads one job only, which is its overview. */
export default function OverviewPage() {
  const { me } = useSession();
  return me?.job ? <Navigate to="/jobs/$job" params={{ job: String(me.job) }} replace /> : <Fleet />;
}

function Fleet() {
  const { span = "1h" } = route.useSearch();
  const navigate = route.useNavigate();
  const mayJoin = useCan("join workers");
  const maySubmit = useCan("submit jobs");
  const overview = useOverview();
  const history = useQuery(historyOf(span));
  const o = overview.data;

  const header = (
    <PageHeader
      title="Overview"
      actions={
        <SegmentedControl
          size="xs"
          value={span}
          aria-label="How far back the charts go"
          data={spans.map((s) => ({ value: s, label: s }))}
          onChange={(v) => void navigate({ search: (s) => ({ ...s, span: v === "1h" ? undefined : (v as Span) }), replace: true })}
        />
      }
    />
  );
  if (!o) {
    return (
      <>
        {header}
        {overview.error ? (
          <ErrorState error={overview.error} retry={() => void overview.refetch()} />
        ) : (
          <Center h={240} role="status" aria-label="Loading">
            <Loader size="sm" />
          </Center>
        )}
      </>
    );
  }
  if (o.workers.total === 0) {
    return (
      <>
        {header}
        <div className="card">
          <EmptyState
            icon={Server}
            title="No workers yet"
            action={
              mayJoin && (
                <LinkButton to="/workers" search={{ add: true }} leftSection={<Plus size={16} aria-hidden />}>
                  Add a worker
                </LinkButton>
              )
            }
          >
            A worker is a machine that runs tasks. Add one with a single command; jobs that are submitted before wait for it.
          </EmptyState>
        </div>
      </>
    );
  }
  return (
    <>
      {header}
      {overview.error && <ErrorState error={overview.error} title="The figures are old" />}
      <Stack gap={14}>
        <Tiles overview={o} history={history.data} span={span} />
        {total(o.tasks) === 0 && <FirstJob maySubmit={maySubmit} />}
        <div className={css.columns}>
          <Stack gap={14} style={{ minWidth: 0 }}>
            <Capacity overview={o} history={history.data} />
            <GPUs />
          </Stack>
          <div className={css.side}>
            <AttentionList items={o.attention} total={o.attention_total} />
            <Tasks overview={o} history={history.data} span={span} />
          </div>
        </div>
        {history.error && <ErrorState error={history.error} title="The history could not be loaded" retry={() => void history.refetch()} />}
      </Stack>
    </>
  );
}

function GPUs() {
  const { measure = "utilization" } = route.useSearch();
  const navigate = route.useNavigate();
  const { data: gpus } = useGPUs();
  if (!gpus?.length) return null;
  return (
    <section className="card" aria-labelledby="gpus">
      <h2 id="gpus" className={css.heading} style={{ marginBottom: 8 }}>
        GPUs
      </h2>
      <Heatmap gpus={gpus} measure={measure} onMeasure={(m) => void navigate({ search: (s) => ({ ...s, measure: m === "utilization" ? undefined : m }), replace: true })} />
    </section>
  );
}

function FirstJob({ maySubmit }: { maySubmit: boolean }) {
  return (
    <section className="card" aria-labelledby="first">
      <h2 id="first" className={css.heading}>
        Run a first task
      </h2>
      <Text size="sm" c="dimmed" mt={4} mb={10}>
        No job has been submitted yet. Paste this where <code>muster</code> is installed and signed in{maySubmit ? ", or write a job here." : "."}
      </Text>
      <div className={css.first}>
        <CopyLine text={'muster run -- sh -c "echo hello from $(hostname)"'} />
        {maySubmit && (
          <LinkButton to="/submit" variant="default" leftSection={<Send size={15} aria-hidden />}>
            Submit a job
          </LinkButton>
        )}
      </div>
    </section>
  );
}
