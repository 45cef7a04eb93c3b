import { Button } from "@mantine/core";
import { Link, getRouteApi, useNavigate } from "@tanstack/react-router";
import { GitCompareArrows } from "lucide-react";
import { EmptyState } from "@/ui/feedback";
import { PageHeader } from "@/ui/PageHeader";
import { JobsCompared } from "./JobsCompared";
import { parseJobs } from "./model/compare";

const route = getRouteApi("/compare");

/** Jobs that were selected in the list, side by side. */
export default function ComparePage() {
  const search = route.useSearch();
  const navigate = useNavigate();
  const ids = parseJobs(search.jobs ?? "");
  return (
    <>
      <PageHeader title="Compare jobs" crumbs={[{ label: "Jobs", to: "/jobs" }]} />
      {ids.length < 2 ? (
        <EmptyState
          icon={GitCompareArrows}
          title="Two or more jobs are needed"
          action={
            <Button component={Link} to="/jobs">
              Open the list of jobs
            </Button>
          }
        >
          Select them in the list and press Compare.
        </EmptyState>
      ) : (
        <JobsCompared ids={ids} onRemove={(id) => void navigate({ to: "/compare", search: { jobs: ids.filter((i) => i !== id).join(",") }, replace: true })} />
      )}
    </>
  );
}
