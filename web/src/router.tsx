import { createRootRoute, createRoute, createRouter, lazyRouteComponent, type AsyncRouteComponent } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Shell } from "./app/Shell";
import { NotFound, PagePending, RouteError } from "./app/RouteStates";
import { validateCompare, validateJob, validateJobs } from "./pages/jobs/search";
import { validateOverview } from "./pages/overview/search";
import { validateSettings } from "./pages/settings/search";
import { validateSubmit } from "./pages/submit/search";
import { validateTask } from "./pages/task/search";
import { validateWorker, validateWorkers } from "./pages/workers/search";

/** A page that is loaded when it is first shown, with all style sheets. Its type is not looked at: it depends on the router's. */
function page(load: () => Promise<unknown>): AsyncRouteComponent<object> {
  return lazyRouteComponent(async () => (await Promise.all([load(), import("./ui/mantine/all")]))[0] as { default: () => ReactNode });
}

// One route a page, loaded when it is first shown. What is in the URL's search is validated by the page's search.ts.
const root = createRootRoute({ component: Shell });

const overview = createRoute({ getParentRoute: () => root, path: "/", validateSearch: validateOverview, component: lazyRouteComponent(() => import("./pages/overview")) });
const jobs = createRoute({ getParentRoute: () => root, path: "/jobs", validateSearch: validateJobs, component: page(() => import("./pages/jobs")) });
const compare = createRoute({ getParentRoute: () => root, path: "/compare", validateSearch: validateCompare, component: page(() => import("./pages/jobs/compare")) });
const job = createRoute({ getParentRoute: () => root, path: "/jobs/$job", validateSearch: validateJob, component: page(() => import("./pages/jobs/job")) });
const task = createRoute({ getParentRoute: () => root, path: "/tasks/$task", validateSearch: validateTask, component: page(() => import("./pages/task")) });
const workers = createRoute({ getParentRoute: () => root, path: "/workers", validateSearch: validateWorkers, component: page(() => import("./pages/workers")) });
const worker = createRoute({ getParentRoute: () => root, path: "/workers/$worker", validateSearch: validateWorker, component: page(() => import("./pages/workers/worker")) });
const submit = createRoute({ getParentRoute: () => root, path: "/submit", validateSearch: validateSubmit, component: page(() => import("./pages/submit")) });
const settings = createRoute({ getParentRoute: () => root, path: "/settings", validateSearch: validateSettings, component: page(() => import("./pages/settings")) });
/** Signs in with the token in the fragment of a link, and shows the job of it. */
const share = createRoute({ getParentRoute: () => root, path: "/share", component: page(() => import("./pages/share")) });

export const router = createRouter({
  routeTree: root.addChildren([overview, jobs, compare, job, task, workers, worker, submit, settings, share]),
  defaultPreload: "intent",
  defaultPendingComponent: PagePending,
  defaultErrorComponent: RouteError,
  defaultNotFoundComponent: NotFound,
  defaultPendingMs: 200,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
