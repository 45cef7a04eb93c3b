import { Anchor, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { CircleCheck, CircleX } from "lucide-react";
import { get } from "@/api/client";
import { useCan, useSession } from "@/api/session";
import { ErrorState } from "@/ui/feedback";
import { dateTime } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { Keys } from "./Keys";
import { Notify } from "./Notify";
import { Secrets } from "./Secrets";
import css from "./settings.module.css";

const route = getRouteApi("/settings");

export default function SettingsPage() {
  const { me } = useSession();
  const mayManage = useCan("manage keys");
  const managesNotify = useCan("manage notifications");
  const managesSecrets = useCan("manage secrets");
  const reads = useCan("read jobs");
  const { project = me?.project ?? "default" } = route.useSearch();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap={14} className={css.page}>
        <section className="card" aria-labelledby="account">
          <h2 id="account" className={css.heading}>
            Signed in as
          </h2>
          <dl className={css.facts}>
            <dt>Key</dt>
            <dd>
              {me?.name} <span className="dim mono">{me?.key}</span>
            </dd>
            <dt>Role</dt>
            <dd>{me?.role}</dd>
            <dt>Project</dt>
            <dd>{me?.project ?? "all"}</dd>
            {me?.job && (
              <>
                <dt>Job</dt>
                <dd>only {me.job}</dd>
              </>
            )}
            <dt>Expires</dt>
            <dd>{me?.expires_at ? dateTime(me.expires_at) : "never"}</dd>
            <dt>Server</dt>
            <dd>
              Muster {me?.version} ·{" "}
              <Anchor href="/api/docs" size="sm" underline="always">
                API documentation
              </Anchor>
            </dd>
          </dl>
        </section>
        {mayManage && <Keys />}
        {managesSecrets && <Secrets key={`secrets ${project}`} project={project} fixed={me?.project !== undefined} />}
        {reads && !me?.job && <Notify key={`notify ${project}`} project={project} fixed={me?.project !== undefined} manages={managesNotify} />}
        {!me?.job && <Gateways />}
      </Stack>
    </>
  );
}

function Gateways() {
  const ready = useQuery({ ...get("/readyz", {}), refetchInterval: 15_000 });
  const list = ready.data?.gateways ?? [];
  return (
    <section className="card" aria-labelledby="gateways">
      <h2 id="gateways" className={css.heading}>
        Gateways to other systems
      </h2>
      {ready.error ? (
        <ErrorState error={ready.error} retry={() => void ready.refetch()} />
      ) : list.length === 0 ? (
        <Text size="sm" c="dimmed">
          This server speaks only its own protocol. Start it with <code>--dialect qubix=:3001</code>, or another dialect, to let that system&apos;s workers and clients connect.
        </Text>
      ) : (
        <Table verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={160}>System</Table.Th>
              <Table.Th>Status</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.map((g) => (
              <Table.Tr key={g.name}>
                <Table.Td>{g.name}</Table.Td>
                <Table.Td>
                  <span className={css.status}>
                    {g.status === "ok" ? <CircleCheck size={15} color="var(--state-succeeded)" aria-hidden /> : <CircleX size={15} color="var(--state-failed)" aria-hidden />}
                    {g.status === "ok" ? "works" : g.status}
                  </span>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </section>
  );
}
