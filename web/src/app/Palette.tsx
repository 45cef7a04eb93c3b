import { useMantineColorScheme } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { Spotlight, createSpotlight } from "@mantine/spotlight";
import "@mantine/spotlight/styles.layer.css";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { ListChecks, LogOut, Plus, Search, Send, Server, SquareChevronRight, type LucideIcon } from "lucide-react";
import { useEffect, useState } from "react";
import { get } from "@/api/client";
import type { Job, Worker } from "@/api/types";
import { useCan, useSession } from "@/api/session";
import { words } from "@/ui/format";
import { StateIcon } from "@/ui/StateBadge";
import type { NavItem } from "./nav";
import { findJobs, findWorkers, joined, parseId } from "./find";
import { schemes } from "./schemes";
import { signOut } from "./signOut";

const [store, control] = createSpotlight();
const most = 8;

/** The command palette: pages, actions, jobs by name or number, tasks by id, workers by name, id or tag. */
export default function Palette({ onClose, items }: { onClose: () => void; items: readonly NavItem[] }) {
  const navigate = useNavigate();
  const { me } = useSession();
  const [text, setText] = useState("");
  const query = text.trim();
  const seesWorkers = useCan("see workers");
  const actions = useActions().filter((a) => query !== "" && a.label.toLowerCase().includes(query.toLowerCase()));
  const jobs = useQuery({ ...get("/api/v1/jobs", { params: { query: { limit: 200 } } }), staleTime: 10_000, enabled: !me?.job });
  // The newest are searched at once and by their labels, too; all by their names when typing rests.
  const [settled] = useDebouncedValue(query, 150);
  const named = useQuery({ ...get("/api/v1/jobs", { params: { query: { name: settled, limit: most } } }), staleTime: 10_000, enabled: !me?.job && settled !== "" });
  const workers = useQuery({ ...get("/api/v1/workers", { params: { query: { view: "basic" } } }), staleTime: 10_000, enabled: seesWorkers });
  useEffect(() => control.open(), []);

  const id = parseId(query);
  const pages = items.filter((n) => n.label.toLowerCase().includes(query.toLowerCase()));
  const foundJobs: readonly Job[] = joined(findJobs(jobs.data?.jobs ?? [], query, most), query !== "" && query === settled && !named.isPlaceholderData ? (named.data?.jobs ?? []) : [], most);
  const foundWorkers: readonly Worker[] = query && !id ? findWorkers(workers.data?.workers ?? [], query, most) : [];
  const empty = !id && !named.isFetching && pages.length + actions.length + foundJobs.length + foundWorkers.length === 0;
  // Enter takes the first result: Spotlight selects by attribute, and loses it when the results are replaced.
  const results = `${query} ${[...pages.map((n) => n.to), ...actions.map((a) => a.label), ...foundJobs.map((j) => j.id), ...foundWorkers.map((w) => w.id)].join(" ")}`;
  useEffect(() => {
    if (document.querySelector("[data-action][data-selected]")) return;
    document.querySelector("[data-action]")?.setAttribute("data-selected", "true");
    store.updateState((s) => ({ ...s, selected: 0 }));
  }, [results]);
  return (
    <Spotlight.Root store={store} query={text} onQueryChange={setText} onSpotlightClose={onClose} shortcut={null} scrollable maxHeight={460} clearQueryOnClose={false}>
      <Spotlight.Search placeholder="Job name or number, task such as 17.3, worker, action" leftSection={<Search size={18} aria-hidden />} aria-label="Search" />
      <Spotlight.ActionsList>
        {id?.task && (
          <Spotlight.ActionsGroup label="Task">
            <Spotlight.Action label={`Task ${id.task}`} leftSection={<SquareChevronRight size={16} aria-hidden />} onClick={() => void navigate({ to: "/tasks/$task", params: { task: id.task ?? "" } })} />
          </Spotlight.ActionsGroup>
        )}
        {id && !id.task && !foundJobs.some((j) => j.id === id.job) && (
          <Spotlight.ActionsGroup label="Job">
            <Spotlight.Action label={`Job ${id.job}`} leftSection={<ListChecks size={16} aria-hidden />} onClick={() => void navigate({ to: "/jobs/$job", params: { job: String(id.job) } })} />
          </Spotlight.ActionsGroup>
        )}
        {pages.length > 0 && (
          <Spotlight.ActionsGroup label="Pages">
            {pages.map((n) => (
              <Spotlight.Action key={n.to} label={n.label} leftSection={<n.icon size={16} aria-hidden />} onClick={() => void navigate({ to: n.to })} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {actions.length > 0 && (
          <Spotlight.ActionsGroup label="Actions">
            {actions.map((a) => (
              <Spotlight.Action key={a.label} label={a.label} leftSection={<a.icon size={16} aria-hidden />} onClick={a.run} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {foundJobs.length > 0 && (
          <Spotlight.ActionsGroup label={query ? "Jobs" : "Newest jobs"}>
            {foundJobs.map((j) => (
              <Spotlight.Action key={j.id} label={`${j.id} ${j.name}`} description={`${words(j.state)} · ${j.project}`} leftSection={<StateIcon state={j.state} size={16} />} onClick={() => void navigate({ to: "/jobs/$job", params: { job: String(j.id) } })} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {foundWorkers.length > 0 && (
          <Spotlight.ActionsGroup label="Workers">
            {foundWorkers.map((w) => (
              <Spotlight.Action key={w.id} label={w.name} description={`${words(w.state)} · ${w.id}`} leftSection={<Server size={16} aria-hidden />} onClick={() => void navigate({ to: "/workers/$worker", params: { worker: w.id } })} />
            ))}
          </Spotlight.ActionsGroup>
        )}
        {empty && <Spotlight.Empty>Nothing has this in its name</Spotlight.Empty>}
      </Spotlight.ActionsList>
    </Spotlight.Root>
  );
}

interface Action {
  readonly label: string;
  readonly icon: LucideIcon;
  readonly run: () => void;
}

/** What can be done from everywhere, as far as the key may. */
function useActions(): readonly Action[] {
  const navigate = useNavigate();
  const { setColorScheme } = useMantineColorScheme();
  const submits = useCan("submit jobs");
  const joins = useCan("join workers");
  return [
    ...(submits ? [{ label: "Submit a job", icon: Send, run: () => void navigate({ to: "/submit" }) }] : []),
    ...(joins ? [{ label: "Add a worker", icon: Plus, run: () => void navigate({ to: "/workers", search: { add: true } }) }] : []),
    ...schemes.map((s) => ({ label: `Colour scheme: ${s.label.toLowerCase()}`, icon: s.icon, run: () => setColorScheme(s.value) })),
    { label: "Sign out", icon: LogOut, run: () => void signOut() },
  ];
}
