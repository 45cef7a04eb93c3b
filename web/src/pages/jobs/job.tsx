import { Button, Loader, Menu, Skeleton, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { Bell, ChartGantt, ChevronDown, FileCode2, GitCompareArrows, Grid3x3, List, Table2, Workflow, type LucideIcon } from "lucide-react";
import { lazy, Suspense, type ComponentType } from "react";
import { get } from "@/api/client";
import { useSession } from "@/api/session";
import type { Job } from "@/api/types";
import { shownState, total } from "@/api/types";
import { ErrorState } from "@/ui/feedback";
import { short } from "@/ui/format";
import { PageHeader } from "@/ui/PageHeader";
import { JobActions } from "./JobActions";
import { JobFacts } from "./JobFacts";
import css from "./job.module.css";
import { Late } from "./Late";
import type { JobSearch, JobTab } from "./search";
import { Why } from "./Why";
import { StateBadge } from "@/ui/StateBadge";

const route = getRouteApi("/jobs/$job");

/** What every tab gets. */
export interface TabProps {
  readonly job: Job;
  readonly search: JobSearch;
  /** Changes the URL's search; undefined removes a field. */
  readonly set: (change: { [K in keyof JobSearch]?: JobSearch[K] | undefined }, replace?: boolean) => void;
}

interface TabInfo {
  readonly label: string;
  readonly icon: LucideIcon;
  readonly page: ComponentType<TabProps>;
}

const tabs: Record<JobTab, TabInfo> = {
  graph: { label: "Graph", icon: Workflow, page: lazy(() => import("./tabs/Graph")) },
  elements: { label: "Elements", icon: Grid3x3, page: lazy(() => import("./tabs/Elements")) },
  tasks: { label: "Tasks", icon: List, page: lazy(() => import("./tabs/Tasks")) },
  timeline: { label: "Timeline", icon: ChartGantt, page: lazy(() => import("./tabs/Timeline")) },
  results: { label: "Results", icon: Table2, page: lazy(() => import("./tabs/Results")) },
  compare: { label: "Compare", icon: GitCompareArrows, page: lazy(() => import("./tabs/Compare")) },
  spec: { label: "Spec", icon: FileCode2, page: lazy(() => import("./tabs/SpecTab")) },
  notifications: { label: "Notifications", icon: Bell, page: lazy(() => import("./tabs/Notifications")) },
};
const order: readonly JobTab[] = ["graph", "elements", "tasks", "timeline", "results", "compare", "spec", "notifications"];

export default function JobPage() {
  const { job: id } = route.useParams();
  const search: JobSearch = route.useSearch();
  const navigate = useNavigate();
  const { me } = useSession();
  const query = useQuery(get("/api/v1/jobs/{job}", { params: { path: { job: id } } }, { live: [`job:${id}`] }));
  // The previous job must not be shown at the URL of another one.
  const job = query.data && String(query.data.id) === id ? query.data : undefined;
  const valid = /^[1-9]\d{0,17}$/.test(id);
  if (!valid || (query.error && !job)) {
    return (
      <>
        <PageHeader title={`Job ${id}`} crumbs={[{ label: "Jobs", to: "/jobs" }]} />
        <ErrorState error={valid ? query.error : new Error(`${id} is not the number of a job. Open the list of jobs to find it.`)} title={valid ? undefined : "Not found"} retry={valid ? () => void query.refetch() : undefined} />
      </>
    );
  }
  if (!job) {
    return (
      <>
        <PageHeader title={`Job ${id}`} crumbs={[{ label: "Jobs", to: "/jobs" }]} />
        <div role="status" aria-label="Loading the job">
          <Skeleton height={20} mb="sm" />
          <Skeleton height={20} width="60%" mb="lg" />
          <Skeleton height={240} />
        </div>
      </>
    );
  }
  const set: TabProps["set"] = (change, replace = true) => {
    const next = Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v !== undefined && v !== "" && !(Array.isArray(v) && v.length === 0)));
    void navigate({ to: "/jobs/$job", params: { job: id }, search: next, replace, resetScroll: false });
  };
  const shown = tabsOf(job, me?.job !== undefined);
  const tab: JobTab = search.tab && shown.includes(search.tab) ? search.tab : (shown[0] ?? "tasks");
  const Page = tabs[tab].page;
  return (
    <>
      <PageHeader
        title={
          <span className={css.title} title={job.name}>
            {job.name}
          </span>
        }
        document={`${job.id} ${job.name}`}
        badge={<StateBadge state={shownState(job)} />}
        crumbs={[
          { label: "Jobs", to: "/jobs" },
          { label: String(job.id), to: `/jobs/${job.id}` },
        ]}
        actions={<JobActions job={job} />}
      />
      <JobFacts job={job} />
      <Why job={job} />
      <Late job={job} />
      <Tabs value={tab} onChange={(t) => t && set({ ...cleared, tab: t as JobTab }, false)} keepMounted={false} className={css.tabs}>
        <div className={css.tabRow}>
          <Tabs.List className={css.tabList} aria-label="Parts of the job">
            {shown.map((t) => {
              const Icon = tabs[t].icon;
              return (
                <Tabs.Tab key={t} value={t} leftSection={<Icon size={15} aria-hidden />} className={css.tab}>
                  {tabs[t].label}
                  {t === "tasks" && <span className={css.tabCount}>{short(total(job.counts))}</span>}
                </Tabs.Tab>
              );
            })}
          </Tabs.List>
          {/* A phone has no room for all tabs in a row. */}
          <Menu position="bottom-start" width="target">
            <Menu.Target>
              <Button className={css.tabMenu} variant="default" fullWidth justify="space-between" rightSection={<ChevronDown size={15} aria-hidden />}>
                {tabs[tab].label}
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              {shown.map((t) => {
                const Icon = tabs[t].icon;
                return (
                  <Menu.Item key={t} leftSection={<Icon size={15} aria-hidden />} onClick={() => set({ ...cleared, tab: t }, false)} aria-current={t === tab ? "page" : undefined} fw={t === tab ? 600 : undefined}>
                    {tabs[t].label}
                  </Menu.Item>
                );
              })}
            </Menu.Dropdown>
          </Menu>
        </div>
        <Tabs.Panel value={tab} pt="md">
          <Suspense
            fallback={
              <div className={css.pending} role="status" aria-label={`Loading ${tabs[tab].label}`}>
                <Loader size="sm" />
              </div>
            }
          >
            <Page key={`${job.id}-${tab}`} job={job} search={search} set={set} />
          </Suspense>
        </Tabs.Panel>
      </Tabs>
    </>
  );
}

/** What belongs to one tab and not to the next; the stage stays. */
const cleared = { state: undefined, at: undefined, by: undefined, span: undefined, view: undefined, sort: undefined, x: undefined, y: undefined, color: undefined, axes: undefined, ranges: undefined, runs: undefined, diff: undefined, with: undefined };

/** The tabs of a job; the first one is shown at first. A shared link cannot read other jobs. */
function tabsOf(job: Job, shared: boolean): JobTab[] {
  const groups = job.groups ?? [];
  return order.filter((t) => {
    if (t === "graph") return groups.length > 1;
    if (t === "elements") return groups.some((g) => g.size > 1);
    if (t === "compare") return !shared;
    if (t === "notifications") return (job.spec?.notify?.length ?? 0) > 0;
    return true;
  });
}
