// Generated from openapi.json by npm run gen. Do not edit.
export interface paths {
    "/api/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List records of the audit log, newest first by default. To follow it, ask for those after the last number, oldest first */
        get: operations["list-audit-records"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/audit/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Export the audit log as lines of JSON: the base, all records, and the head. It is complete only if it ends with the head */
        get: operations["export-audit-log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/audit/verify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Verify the hash chain of the whole audit log, which must not have been changed since it was written */
        get: operations["verify-audit-log"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/backup": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Back up the server, as a tar archive that muster restore reads. It is complete only if it ends with end.json */
        get: operations["backup"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/blobs/missing": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** List which of these blobs the server does not have */
        post: operations["missing-blobs"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/blobs/{sha256}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download a blob, or ranges of it */
        get: operations["get-blob"];
        /** Upload a blob, or resume its upload */
        put: operations["put-blob"];
        post?: never;
        delete?: never;
        options?: never;
        /** Check whether the server has a blob: 404 with Upload-Offset if it has only a part */
        head: operations["head-blob"];
        patch?: never;
        trace?: never;
    };
    "/api/v1/blobs/{sha256}/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Check a blob whose download was damaged: the server verifies its file and moves it aside if it is damaged */
        post: operations["check-blob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Stream changes as server-sent events; after a resync event, which means missed events, read the state again */
        get: operations["watch-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the load of the fleet or of a worker over time: every 10 seconds for the last hour, every minute for 12 hours, every 10 minutes for a week. A key for one project does not see the fleet's task counts */
        get: operations["get-history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List jobs, newest first by default */
        get: operations["list-jobs"];
        put?: never;
        /** Submit a job */
        post: operations["submit-job"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show a job with its spec and stages */
        get: operations["get-job"];
        put?: never;
        post?: never;
        /** Remove an ended job with its logs and artifacts */
        delete: operations["remove-job"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Cancel a job, or some of its tasks */
        post: operations["cancel-job"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/edit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Change the priority of a job that has not ended, hold it, or release it */
        post: operations["edit-job"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/keep": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Exempt a job from retention and prune */
        put: operations["keep-job"];
        post?: never;
        /** Apply retention to a job again */
        delete: operations["unkeep-job"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/late": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List late reports: reports that came after the server had given up their attempts, at most 100 */
        get: operations["list-late-reports"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the delivery log of a job, newest first */
        get: operations["list-job-notifications"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/previous": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the newest older job of the same project and name, with its spec and stages */
        get: operations["get-previous-job"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Retry finished tasks that did not succeed */
        post: operations["retry-job"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/share": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create a link that lets anyone read this job, and nothing else, until it expires */
        post: operations["share-job"];
        /** Revoke all links to this job */
        delete: operations["unshare-job"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/states": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the state of every task of a job in a compact form (run-length encoded) */
        get: operations["get-job-states"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the tasks of a job, by number */
        get: operations["list-tasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{job}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the total usage of a job's finished attempts */
        get: operations["get-job-usage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List API keys */
        get: operations["list-keys"];
        put?: never;
        /** Create an API key; its secret is returned only once */
        post: operations["create-key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/keys/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revoke an API key */
        delete: operations["revoke-key"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/keys/{key}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Give an API key a new secret, which is returned only once; the old one ends at once or after an overlap */
        post: operations["rotate-key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/kinds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List kinds of tasks and how many workers offer each */
        get: operations["list-kinds"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/kinds/{kind}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the input of a kind of tasks and the workers that offer it */
        get: operations["get-kind"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the delivery log, newest first */
        get: operations["list-notifications"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/oidc": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show whether users can sign in with an OpenID Connect provider */
        get: operations["get-sign-in"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/oidc/device": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Start a sign-in that the user completes in any browser, with a code */
        post: operations["begin-device-sign-in"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/oidc/device/token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Get an API key once the user has signed in with the code */
        post: operations["finish-device-sign-in"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/oidc/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Redirect a browser to the OpenID Connect provider */
        get: operations["begin-sign-in"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the fleet's capacity and use, tasks by state, GPUs, cost, and what needs attention, up to two seconds old. A key for one project sees only tasks and jobs of that project */
        get: operations["get-overview"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/plan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Validate a job and show where its tasks would run now */
        post: operations["plan-job"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/cache": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List results in the cache of a project, the newest first */
        get: operations["list-cache"];
        put?: never;
        post?: never;
        /** Delete results from the cache of a project: those that have all of what the parameters say, or all */
        delete: operations["clear-cache"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/notify": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the notifications of a project and their signing secret */
        get: operations["get-notify"];
        /** Replace the notifications of a project */
        put: operations["put-notify"];
        post?: never;
        /** Delete the notifications of a project */
        delete: operations["delete-notify"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/notify/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a test notification and show the result */
        post: operations["test-notify"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/retention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Replace the retention policy of a project */
        put: operations["put-retention"];
        post?: never;
        /** Apply the policies of the server to a project again */
        delete: operations["delete-retention"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Create or replace a schedule, which submits a job at the times of a cron expression */
        post: operations["create-schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/schedules/{schedule}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show a schedule with its last runs and the spec of its jobs */
        get: operations["get-schedule"];
        put?: never;
        post?: never;
        /** Delete a schedule, not its jobs */
        delete: operations["delete-schedule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/schedules/{schedule}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause a schedule: it has no runs until it is resumed */
        post: operations["pause-schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/schedules/{schedule}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a schedule from now on */
        post: operations["resume-schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/schedules/{schedule}/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Submit a job of a schedule now, with the rights of the schedule's owner */
        post: operations["run-schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/secrets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the secrets of a project, without their values */
        get: operations["list-secrets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/projects/{project}/secrets/{secret}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Set a secret of a project */
        put: operations["put-secret"];
        post?: never;
        /** Delete a secret of a project */
        delete: operations["delete-secret"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/prune": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Delete what exceeds the retention policies, in the background */
        post: operations["prune"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/retention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the retention policies */
        get: operations["get-retention"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List schedules, by project and name */
        get: operations["list-schedules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schemas/job.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the JSON Schema (2020-12) of job files, for editors */
        get: operations["get-job-schema"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sign in a browser: check an API key and set it as a cookie that scripts cannot read */
        post: operations["create-session"];
        /** Sign out a browser: remove the cookie, and end the user's sign-in if it was one with an OpenID Connect provider */
        delete: operations["delete-session"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List tasks of all jobs by state, newest job first */
        get: operations["list-all-tasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show a task */
        get: operations["get-task"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/artifacts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the artifacts of an attempt */
        get: operations["list-artifacts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/artifacts/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download an artifact of an attempt, or ranges of it */
        get: operations["get-artifact"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/attempts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the attempts of a task */
        get: operations["list-attempts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/cache": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Explain how a task uses the result cache, and what differs from the nearest entry */
        get: operations["explain-cache"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the events of a task's lifecycle */
        get: operations["list-task-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Execute a command in a running task, or copy its files, over a WebSocket */
        get: operations["exec-task"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/explain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Explain the state of a task */
        get: operations["explain-task"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show output as text, or stream it as server-sent events (Accept: text/event-stream or follow=true) */
        get: operations["get-logs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/logs/search": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Search a log, for at most 2 seconds or 256 MiB per request */
        get: operations["search-logs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/logs/window": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show a part of a log: the records from an offset on, or those before it */
        get: operations["get-log-window"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show what a task reported over time: progress, steps, metrics and checkpoints per attempt */
        get: operations["get-task-metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/spec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the spec of a task with the values of its element */
        get: operations["get-task-spec"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tasks/{task}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the usage of a task over time, or stream it as server-sent events (Accept: text/event-stream or follow=true) */
        get: operations["get-usage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/whoami": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show the caller's key and permissions, and the server's version */
        get: operations["whoami"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List workers */
        get: operations["list-workers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show a worker */
        get: operations["get-worker"];
        put?: never;
        post?: never;
        /** Delete a disconnected or pending worker and revoke its key */
        delete: operations["remove-worker"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Approve a worker that waits for it: it takes tasks */
        post: operations["approve-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Drain a worker: it finishes its tasks and leaves; tasks that still run at the deadline are moved to other workers */
        post: operations["drain-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/heal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Check a worker's quarantined GPUs again and release the healthy ones */
        post: operations["heal-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pause a worker: it gets no new tasks, for a time or until it is resumed. It stays paused while it is unreachable or gone */
        post: operations["pause-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Revoke the key of a worker, and make a join token for one hour with which it joins again under its id, with a new key; it is returned only once */
        post: operations["reset-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/workers/{worker}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a worker: end its pause or drain */
        post: operations["resume-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/download/muster": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download the server's executable, to start a worker on a machine of the same platform */
        get: operations["download-muster"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Check that the process answers */
        get: operations["healthz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/ipfs/{cid}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download a file that a result refers to as ipfs://{cid}, or ranges of it */
        get: operations["get-content"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/link/v1/join": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Register a worker and its public key with a join token */
        post: operations["join-worker"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/link/v1/key": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Register a worker's public key in place of the bearer key that an earlier version gave it */
        post: operations["register-worker-key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/link/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Issue the token of a worker's requests for a request that is signed with its key */
        post: operations["create-worker-session"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Check that the server can work: engine and store answer */
        get: operations["readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        Allow: {
            env?: string[] | null;
            host_network?: boolean;
            images?: string[] | null;
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            max_task_timeout?: number | string;
            mounts?: string[] | null;
            secrets?: string[] | null;
            signed_by?: string[] | null;
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            task_timeout?: number | string;
            users?: string[] | null;
        };
        Amounts: {
            /**
             * Format: double
             * @description cores
             */
            cpus: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            gpu_memory: number;
            /**
             * Format: int64
             * @description devices; if reserved, devices that a task has, whole or shared
             */
            gpus: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory: number;
            /** Format: int64 */
            slots: number;
        };
        Artifact: {
            cid?: string;
            name: string;
            sha256: string;
            /** Format: int64 */
            size: number;
            url?: string;
        };
        Artifacts: {
            artifacts: components["schemas"]["Artifact"][];
        };
        Attempt: {
            artifacts?: components["schemas"]["Artifact"][] | null;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            assigned_at?: string;
            /** Format: int64 */
            exit_code?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            id: string;
            image?: string;
            /** Format: int64 */
            log_size?: number;
            message?: string;
            outcome?: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "condition_false" | "job_stopped" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            usage?: components["schemas"]["Usage"];
            worker?: string;
            worker_name?: string;
        };
        AttemptMetrics: {
            /** Format: int64 */
            attempt: number;
            /** @description times at which a checkpoint was saved, at most 1000 */
            checkpoints: string[];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            /** @description absent while it runs */
            outcome?: string;
            /** @description in order of time; a point has only values reported since the previous point. If there are more than requested, adjacent points are merged into two, with the minimum and the maximum of each metric */
            points: components["schemas"]["Point"][];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            /**
             * Format: int64
             * @description number of recorded points; points has fewer if they were merged
             */
            taken: number;
        };
        Attempts: {
            attempts: components["schemas"]["Attempt"][];
        };
        Attention: {
            /**
             * @description most helpful action
             * @enum {string}
             */
            action: "heal" | "resume" | "remove" | "open_job" | "open_worker" | "upgrade" | "free_disk" | "open_docs" | "list_jobs" | "list_workers";
            /** @description UUID */
            gpu?: string;
            /** Format: int64 */
            job?: number;
            job_name?: string;
            /** @enum {string} */
            kind: "gpu_quarantined" | "worker_unreachable" | "worker_lost" | "worker_constrained" | "worker_avoided" | "worker_paused" | "worker_outdated" | "job_failing" | "disk_filling" | "gateway_down";
            /** @description one sentence */
            message: string;
            /**
             * Format: int64
             * @description if set, this entry represents that number of further problems of its kind that are not listed; severity is their highest
             */
            more?: number;
            /** @enum {string} */
            severity: "critical" | "warning" | "info";
            worker?: string;
            worker_name?: string;
        };
        AuditPage: {
            /** @description cursor of the next page; absent on the last one */
            next?: string;
            records: components["schemas"]["AuditRecord"][] | null;
        };
        AuditRecord: {
            /** @description IP address of the caller's connection */
            address?: string;
            /**
             * Format: date-time
             * @description of the first occurrence; never before that of the previous record
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /**
             * Format: int64
             * @description number of occurrences that this record stands for
             */
            count: number;
            /** @description why it was denied, the code of the error, or what was done */
            detail?: string;
            hash: string;
            /** @description id of the caller's API key; absent for an unknown caller and for the server itself */
            key?: string;
            key_name?: string;
            /** @example job/17 */
            object?: string;
            /** @description id of the operation in the API, or one of the server itself */
            operation: string;
            /** @enum {string} */
            outcome: "allowed" | "denied" | "failed";
            project?: string;
            /** @description trace id of the request */
            request?: string;
            /** @description role of the key; server for the server itself */
            role?: string;
            /**
             * Format: int64
             * @description number, from 1 without gaps
             */
            seq: number;
            /**
             * Format: int64
             * @description HTTP status of the answer
             */
            status?: number;
            /**
             * Format: date-time
             * @description of the last occurrence, if there are several
             * @example 2026-01-02T15:04:05.000Z
             */
            until?: string;
            /** @description gateway that the caller used */
            via?: string;
            /** @description worker of the key */
            worker?: string;
        };
        AuditVerification: {
            /** @description HASH@SEQ of the last record that retention removed; the number is 0 for none */
            base: string;
            /** @description HASH@SEQ of the last verified record. Note it elsewhere: a later verification that is given it finds that records at the end were removed or that the log was written again */
            head: string;
            intact: boolean;
            problem?: string;
            /**
             * Format: int64
             * @description number of verified records
             */
            records: number;
            /**
             * Format: int64
             * @description number of the first record that is not as it was written
             */
            seq?: number;
        };
        BlobCheck: {
            /**
             * @description damaged: it was moved aside, upload it again; unreadable: the server's disk cannot read it now, try again later or upload it again; unchecked: try again later
             * @enum {string}
             */
            verdict: "intact" | "damaged" | "unreadable" | "unchecked";
        };
        Cache: {
            /** @description the newest first */
            entries: components["schemas"]["CacheEntry"][] | null;
        };
        CacheCleared: {
            /**
             * Format: int64
             * @description entries
             */
            deleted: number;
        };
        CacheDifferent: {
            /** @description absent if the entry does not have it */
            entry?: string;
            /** @example env.SEED */
            name: string;
            /** @description absent if the task does not have it */
            task?: string;
        };
        CacheEntry: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at: string;
            /**
             * Format: date-time
             * @description the last time
             * @example 2026-01-02T15:04:05.000Z
             */
            hit_at?: string;
            /**
             * Format: int64
             * @description how many tasks took the result
             */
            hits: number;
            /** @description SHA-256 of what determines the result */
            key: string;
            kind: string;
            /** @description the task that ran; it may have been removed */
            origin: string;
            /**
             * @description bytes of its artifacts
             * @example 1073741824
             */
            size: number;
            stage: string;
        };
        Checkpoint: {
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            every?: number | string;
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            grace?: number | string;
            path?: string;
            signal?: string;
        };
        Container: {
            capabilities?: string[] | null;
            entrypoint?: string[] | null;
            mounts?: components["schemas"]["Mount"][] | null;
            pull?: string;
            read_only?: boolean;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            shm_size?: number;
            user?: string;
            workdir?: string;
        };
        Deliveries: {
            deliveries: components["schemas"]["Delivery"][];
            /** @description cursor of the next page; absent at the end */
            next?: string;
        };
        Delivery: {
            /** Format: int64 */
            attempts: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at: string;
            /** @description why the last attempt failed */
            error?: string;
            /** @enum {string} */
            event: "job.succeeded" | "job.failed" | "job.timed_out" | "job.cancelled" | "job.waiting_long" | "test";
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            /** @description host and port of the URL; the rest may be secret */
            host: string;
            /** @description webhook-id of the request */
            id: string;
            /**
             * Format: int64
             * @description absent for a test
             */
            job?: number;
            /**
             * Format: date-time
             * @description time of the next attempt
             * @example 2026-01-02T15:04:05.000Z
             */
            next_at?: string;
            preset?: string;
            project: string;
            /**
             * @description failed means that no more attempts are made
             * @enum {string}
             */
            state: "pending" | "delivered" | "failed";
            /**
             * Format: int64
             * @description HTTP status of the last attempt; absent without an answer
             */
            status?: number;
            /**
             * @description duration of the last attempt
             * @example 90
             */
            took?: number | string;
            /**
             * Format: date-time
             * @description time of the last attempt
             * @example 2026-01-02T15:04:05.000Z
             */
            tried_at?: string;
        };
        DeviceHandle: {
            device: string;
        };
        DeviceResult: {
            key?: components["schemas"]["Key"];
            /** @description the user has not signed in yet: ask again after the interval */
            pending: boolean;
            /** @description bearer token; it is not returned again */
            secret?: string;
        };
        DeviceSignIn: {
            /** @description names the sign-in; keep it secret */
            device: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at: string;
            /** @description url with the code */
            full_url?: string;
            /**
             * @description pause between two questions whether the user has signed in
             * @example 90
             */
            interval: number | string;
            /** @example https://accounts.example.com/device */
            url: string;
            /**
             * @description what the user enters at url
             * @example BDWP-HQPK
             */
            user_code: string;
        };
        Disconnect: {
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            grace?: number | string;
            then?: string;
        };
        DiskLoad: {
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            free: number;
            low?: boolean;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            total: number;
        };
        Drain: {
            /**
             * @description from now; tasks that still run then are stopped and continue on other workers, from their checkpoints if they have any; 0 means at once, absent means never
             * @example 90
             */
            deadline?: number | string | null;
        };
        ElementSpec: {
            /** @description image of its container, by digest */
            image?: string;
            /** @description false while references to unfinished stages are not resolved */
            resolved: boolean;
            /** @description with the values of this element of an array or matrix, and the results of other stages once they are known */
            spec: components["schemas"]["TaskSpec"];
            task: string;
        };
        Explanation: {
            /** Format: int64 */
            ahead: number;
            beyond?: boolean;
            /** Format: int64 */
            more?: number;
            nearest?: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            not_until?: string;
            /** Format: int64 */
            position?: number;
            stage?: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            start?: string;
            /** @enum {string} */
            state: "waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped";
            summary: string;
            task?: string;
            waiting?: string[] | null;
            workers?: components["schemas"]["Verdict"][] | null;
        };
        FieldError: {
            /** Format: int64 */
            column?: number;
            hint?: string;
            /** Format: int64 */
            line?: number;
            message: string;
            path: string;
        };
        FlatSpec: {
            allow_hosts?: string[] | null;
            /**
             * @description numbers and ranges, one task per number, or a reference to a list
             * @example 1-1000
             * @example 0-9,20,30-39:3
             * @example ${prepare.result.shards}
             */
            array?: string;
            /**
             * @description true, seconds, or a string such as 12h or 7d
             * @example true
             */
            cache?: boolean | number | string;
            /** @description a string is the path */
            checkpoint?: string | components["schemas"]["Checkpoint"];
            container?: components["schemas"]["Container"];
            disconnect?: components["schemas"]["Disconnect"];
            env?: {
                [key: string]: string;
            };
            files?: string;
            /** @description a number is the size */
            gang?: number | components["schemas"]["Gang"];
            image?: string;
            input?: unknown;
            inputs?: components["schemas"]["Input"][] | null;
            isolation?: string;
            kill?: components["schemas"]["Kill"];
            kind?: string;
            labels?: {
                [key: string]: string;
            };
            launcher?: string;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            log_cap?: number;
            /** @description one task per combination; an axis is a list of values or a string of ranges */
            matrix?: {
                [key: string]: string | (string | number | boolean)[];
            };
            name?: string;
            needs?: string[] | null;
            network?: string;
            notify?: components["schemas"]["Notify"][] | null;
            /** Format: int64 */
            nproc_per_node?: number;
            outputs?: string[] | null;
            /** Format: int64 */
            priority?: number;
            project?: string;
            python?: components["schemas"]["Python"];
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            queue_timeout?: number | string;
            resources?: components["schemas"]["Request"];
            retries?: components["schemas"]["Retries"];
            /** @description a list is executed directly, a string by sh -c */
            run?: string | string[];
            /** @description a string is the script's text */
            script?: string | components["schemas"]["Script"];
            secrets?: (string | components["schemas"]["TaskSecret"])[] | null;
            signed_by?: string;
            stdin?: string;
            sweep?: components["schemas"]["Sweep"];
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            timeout?: number | string;
            when?: string;
            where?: components["schemas"]["Where"];
        };
        GPU: {
            /** Format: int64 */
            index: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory: number;
            mig?: string;
            name: string;
            parent?: string;
            quarantined?: string;
            uuid: string;
            vendor: string;
        };
        GPULoad: {
            /** Format: double */
            latency?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            /** Format: double */
            power?: number;
            /** Format: double */
            temperature?: number;
            /** Format: double */
            utilization?: number;
            uuid: string;
        };
        GPURequest: {
            /** Format: int64 */
            count?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            model?: string;
            share?: boolean;
            vendor?: string;
        };
        GPUSample: {
            /** Format: double */
            latency?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            own?: number;
            /** Format: double */
            power?: number;
            /** Format: double */
            temperature?: number;
            /** Format: double */
            utilization?: number;
            uuid: string;
        };
        Gang: {
            on_loss?: string;
            /** Format: int64 */
            size: number;
        };
        Gateway: {
            /** @description name of the system, such as qubix */
            name: string;
            /** @description ok, or why it cannot work now; the reason is shown only to requests with a valid key */
            status: string;
        };
        Grant: {
            /** Format: double */
            cpus?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            disk?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            gpu_memory?: number;
            gpus?: string[] | null;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            /** Format: int64 */
            pids?: number;
            /** Format: int64 */
            slots?: number;
        };
        Group: {
            /** @description number of tasks in each state */
            counts: {
                assigned?: number;
                cancelled?: number;
                cancelling?: number;
                failed?: number;
                queued?: number;
                running?: number;
                skipped?: number;
                succeeded?: number;
                timed_out?: number;
                waiting?: number;
            };
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            /** Format: int64 */
            first: number;
            /** Format: int64 */
            index: number;
            /** Format: int64 */
            job: number;
            name: string;
            /** Format: int64 */
            size: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            state?: string;
            unsized?: boolean;
        };
        Hashes: {
            sha256: string[];
        };
        Heal: {
            /** @description by UUID or index; absent means all quarantined ones */
            gpus?: string[] | null;
        };
        Health: {
            /** @enum {string} */
            status: "ok";
        };
        History: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            from: string;
            /** @description one list per metric, with a number or null for each of times */
            series: {
                [key: string]: (number | null)[] | null;
            };
            /**
             * Format: int64
             * @description seconds between two points; each point is the mean over the step that begins at its time
             */
            step: number;
            times: string[];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            to: string;
            worker?: string;
        };
        Input: {
            as?: string;
            from: string;
            name: string;
        };
        Job: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            artifacts_removed_at?: string;
            /** Format: double */
            cost?: number;
            /** @description number of tasks in each state */
            counts: {
                assigned?: number;
                cancelled?: number;
                cancelling?: number;
                failed?: number;
                queued?: number;
                running?: number;
                skipped?: number;
                succeeded?: number;
                timed_out?: number;
                waiting?: number;
            };
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at?: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            groups?: components["schemas"]["Group"][] | null;
            held?: boolean;
            /** Format: int64 */
            id: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            kept_at?: string;
            kind?: string;
            labels?: {
                [key: string]: string;
            };
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            logs_removed_at?: string;
            name: string;
            owner?: string;
            owner_name?: string;
            /** Format: int64 */
            priority: number;
            /** Format: double */
            progress?: number;
            project: string;
            spec?: components["schemas"]["Spec"];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            /** @enum {string} */
            state: "waiting" | "queued" | "running" | "succeeded" | "failed" | "timed_out" | "cancelled";
            /** Format: int64 */
            unsized?: number;
        };
        JobEdit: {
            /** @description whether its tasks are not started for now; running tasks continue */
            held?: boolean | null;
            /**
             * Format: int64
             * @description tasks of jobs with a higher priority start first
             */
            priority?: number | null;
        };
        JobUsage: {
            /**
             * Format: int64
             * @description number of finished attempts that reported their usage
             */
            attempts: number;
            /**
             * Format: double
             * @description workers' prices times wall time
             */
            cost: number;
            /** Format: double */
            cpu_seconds: number;
            /**
             * Format: double
             * @description energy of the devices
             */
            energy_wh: number;
            /**
             * Format: double
             * @description wall time times granted devices, shared or not
             */
            gpu_seconds: number;
            /** Format: int64 */
            job: number;
            /**
             * @description highest of any attempt
             * @example 1073741824
             */
            memory_peak: number;
            /** Format: double */
            wall_seconds: number;
        };
        Jobs: {
            jobs: components["schemas"]["Job"][];
            /** @description cursor of the next page; absent at the end */
            next?: string;
        };
        JoinRequest: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            name: string;
            proof: string;
            public_key: string;
            replaces?: string | null;
            worker?: string | null;
        };
        Joined: {
            server: string;
            worker: string;
        };
        Key: {
            /** @description networks from which it may be used; absent means all */
            addresses?: string[] | null;
            /** @description the workers that join by it wait for approval; of the key of a worker: the worker does */
            approval?: boolean;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at?: string;
            /**
             * Format: date-time
             * @description absent means never
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at?: string;
            id: string;
            /**
             * Format: int64
             * @description the only job that it can read; absent means all
             */
            job?: number;
            /** @description the key by which the worker joined */
            joined_by?: string;
            /**
             * Format: date-time
             * @description when a request or session with it began or ended, or now while one runs; after a crash of the server up to a minute too early
             * @example 2026-01-02T15:04:05.000Z
             */
            last_used_at?: string;
            /** @description address of the client, or of the proxy before the server */
            last_used_from?: string;
            name: string;
            /**
             * @description how the secret begins, for recognition; absent for secrets that were chosen by hand, for keys of older versions, and for workers, which have a public key
             * @example mst_viewer_l3me
             */
            prefix?: string;
            /** @description the only project that it can access; absent means all */
            project?: string;
            /** @enum {string} */
            role: "admin" | "operator" | "submitter" | "viewer" | "worker" | "join";
            /** @description the key whose old secret this is; it works like that key until it expires */
            rotated_to?: string;
            /** @description tags that the workers have that join by it, and that are reserved for them */
            tags?: string[] | null;
            /**
             * Format: int64
             * @description how many workers may still join by it; absent means any number
             */
            uses?: number;
            /** @description the worker whose key it is */
            worker?: string;
        };
        KeyRequest: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            proof: string;
            public_key: string;
        };
        Keys: {
            keys: components["schemas"]["Key"][];
        };
        Kill: {
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            grace?: number | string;
            signal?: string;
        };
        Kind: {
            /** @description one sentence */
            about?: string;
            /**
             * Format: int64
             * @description number of disconnected workers that offered it
             */
            away?: number;
            /** @description it saves checkpoints and resumes from them on any worker */
            checkpoint?: boolean;
            /**
             * Format: int64
             * @description number of workers, connected or not, with another definition of this name
             */
            differ?: number;
            /** @description JSON Schema (2020-12) of the input; absent if it takes none */
            input?: unknown;
            /** @description input fields: tasks with equal values share a loaded model */
            merge_key?: string[] | null;
            name: string;
            /**
             * Format: int64
             * @description number of connected workers that offer it
             */
            offered: number;
            /** @description kind custom can also run it, by its name */
            operation?: boolean;
            /** @description a custom kind, added by owners of workers */
            own?: boolean;
            /** @description default resources of its tasks */
            resources?: components["schemas"]["Request"];
            /**
             * @description whether a task of this kind has a command
             * @enum {string}
             */
            run: "no" | "may" | "must";
            /** @description Python runtime that its program uses */
            runtime?: string;
            /** @description connected workers that offer it; only if a single kind is requested */
            workers?: string[] | null;
        };
        Kinds: {
            kinds: components["schemas"]["Kind"][];
        };
        Late: {
            late: components["schemas"]["LateReport"][];
        };
        LateReport: {
            artifacts?: components["schemas"]["Artifact"][] | null;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            attempt: string;
            /** Format: int64 */
            exit_code?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at: string;
            image?: string;
            /** Format: int64 */
            log_size?: number;
            message?: string;
            outcome: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "condition_false" | "job_stopped" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            result?: unknown;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            usage?: components["schemas"]["Usage"];
            worker: string;
            worker_name?: string;
        };
        Load: {
            /** Format: double */
            cpu: number;
            disk?: components["schemas"]["DiskLoad"];
            gpus?: components["schemas"]["GPULoad"][] | null;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory: number;
        };
        LogMatch: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /**
             * Format: int64
             * @description offset of the record in the log
             */
            offset: number;
            /** @enum {string} */
            stream: "stdout" | "stderr" | "system";
            /** @description the record, or 2 KiB around the match if it is longer */
            text: string;
        };
        LogMatches: {
            /**
             * Format: int64
             * @description 0 means none yet
             */
            attempt: number;
            /** @description the search has reached the end in this direction */
            done: boolean;
            /** @description in the order of the search: backward, last match first */
            matches: components["schemas"]["LogMatch"][];
            /**
             * Format: int64
             * @description offset at which a search in the same direction continues
             */
            scanned_to: number;
        };
        LogRecord: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** @description set in place of text if the output is not UTF-8 */
            bytes?: string;
            /**
             * Format: int64
             * @description offset of the record in the log
             */
            offset: number;
            /** @enum {string} */
            stream: "stdout" | "stderr" | "system";
            text?: string;
        };
        LogWindow: {
            /**
             * Format: int64
             * @description 0 means none yet
             */
            attempt: number;
            /** @description nothing follows last: the attempt has ended and its log is complete */
            done: boolean;
            /**
             * Format: int64
             * @description offset at which the window begins: read backward from there for earlier records; 0 is the beginning of the log
             */
            first: number;
            /**
             * Format: int64
             * @description offset at which the window ends: read forward from there for later records
             */
            last: number;
            /** @description in the order of the log; may be empty in the middle of the log if no record is of the requested stream */
            records: components["schemas"]["LogRecord"][];
            /**
             * Format: int64
             * @description current size of the log in bytes, of all streams
             */
            size: number;
        };
        MadeKey: {
            key: components["schemas"]["Key"];
            /** @description bearer token; it is not returned again */
            secret: string;
        };
        Metrics: {
            /** @description by number: the last 20, or the requested one */
            attempts: components["schemas"]["AttemptMetrics"][];
            /**
             * @description state of the task
             * @enum {string}
             */
            state: "waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped";
            task: string;
        };
        Missing: {
            missing: string[];
        };
        Mount: {
            read_only?: boolean;
            source: string;
            target: string;
        };
        NewKey: {
            /** @description networks from which the key, and those of the workers that join by it, may be used, such as 10.0.0.0/8; absent means all */
            addresses?: string[] | null;
            /** @description the workers that join by it get no tasks until they are approved */
            approval?: boolean | null;
            name: string;
            /** @description the only project that it can access; absent means that of the caller's key, or all */
            project?: string | null;
            /** @enum {string} */
            role: "admin" | "operator" | "submitter" | "viewer" | "join";
            /** @description tags that the workers have that join by it, and that are reserved for them */
            tags?: string[] | null;
            /**
             * @description validity; absent or 0 means that it does not expire
             * @example 90
             */
            ttl?: number | string | null;
            /**
             * Format: int64
             * @description how many workers may join by it; absent or 0 means any number
             */
            uses?: number | null;
        };
        NewSchedule: {
            /**
             * @description five fields: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly
             * @example 30 2 * * *
             */
            cron: string;
            /**
             * @description what happens to runs whose time passed while the server did not run; run-all starts the last 100, and needs overlap: allow
             * @default run-once
             * @enum {string|null}
             */
            missed: "skip" | "run-once" | "run-all" | null;
            /** @example nightly */
            name: string;
            /**
             * @description what happens at the time of a run if earlier jobs have not ended
             * @default allow
             * @enum {string|null}
             */
            overlap: "allow" | "forbid" | "replace" | null;
            /** @description create it without runs until it is resumed */
            paused?: boolean | null;
            /** @description replace the schedule with the name if there is one */
            replace?: boolean | null;
            /** @description of the jobs: without a signature, in the project of the schedule */
            spec: components["schemas"]["Spec"];
            /**
             * @description of the IANA database; default: UTC
             * @example Europe/Berlin
             */
            timezone?: string | null;
        };
        NewSecret: {
            /** @description at least 8 bytes, without white space around them, and at most 64 KiB */
            value: string;
            /** @description give it only to workers with all of these tags; default: to all */
            workers?: string[] | null;
        };
        NewShare: {
            /**
             * @description validity of the link: at most 30d; default: 24h
             * @example 90
             */
            ttl?: number | string | null;
        };
        Notifications: {
            /** @description secrets are returned encrypted, and may be sent back encrypted */
            notify: components["schemas"]["Notify"][];
        };
        Notify: {
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            after?: number | string;
            on?: string[] | null;
            preset?: string;
            secret?: string;
            url: string;
        };
        Oldest: {
            /** Format: int64 */
            job: number;
            /** @description name of the job */
            name: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            queued_at: string;
            /** @description why it waits, in one sentence */
            summary?: string;
            task: string;
        };
        Overview: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** @description problems that need an operator, most severe first, at most 20 of each kind: if there are more, the last one of the kind has their number in more */
            attention: components["schemas"]["Attention"][];
            /**
             * Format: int64
             * @description number of problems, including those not listed
             */
            attention_total: number;
            /** @description resources of connected workers */
            capacity: components["schemas"]["Amounts"];
            /**
             * Format: double
             * @description sum of the prices of workers that run tasks
             */
            cost_per_hour: number;
            /** @description devices of connected workers, at most 20,000 */
            gpus: components["schemas"]["OverviewGPU"][];
            /** @description the task that has been queued longest; absent if none is queued */
            oldest_waiting?: components["schemas"]["Oldest"];
            /**
             * Format: double
             * @description sum of the prices of all connected workers
             */
            price_per_hour: number;
            /** @description tasks per second, over the last minute */
            rate: components["schemas"]["Rate"];
            /** @description resources granted to assigned and running tasks */
            reserved: components["schemas"]["Amounts"];
            /** @description all tasks by state, including those of finished jobs */
            tasks: {
                assigned?: number;
                cancelled?: number;
                cancelling?: number;
                failed?: number;
                queued?: number;
                running?: number;
                skipped?: number;
                succeeded?: number;
                timed_out?: number;
                waiting?: number;
            };
            /** @description load of the machines of connected workers at their last heartbeats */
            used: components["schemas"]["Used"];
            workers: components["schemas"]["WorkerCounts"];
        };
        OverviewGPU: {
            /** Format: int64 */
            index: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory_used?: number;
            name: string;
            /**
             * Format: double
             * @description watts
             */
            power?: number;
            /** @description why no task gets it */
            quarantined?: string;
            /**
             * Format: int64
             * @description number of tasks that have it, whole or shared
             */
            tasks: number;
            /**
             * Format: double
             * @description degrees Celsius
             */
            temperature?: number;
            /**
             * Format: double
             * @description share of the time in use, 0 to 1
             */
            utilization?: number;
            uuid: string;
            worker: string;
            worker_name: string;
        };
        Param: {
            default?: unknown;
            description?: string;
            enum?: unknown[] | null;
            /** Format: double */
            maximum?: number;
            /** Format: double */
            minimum?: number;
            type?: string;
            value?: unknown;
        };
        Pause: {
            /**
             * @description time until it is resumed; absent means that it must be resumed by request
             * @example 90
             */
            for?: number | string | null;
        };
        Plan: {
            stages: components["schemas"]["Explanation"][];
        };
        Point: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at?: string;
            checkpoint?: boolean;
            metrics?: {
                [key: string]: number;
            };
            /** Format: double */
            progress?: number;
            step?: string;
        };
        Problem: {
            /** @description stable error code: match on this */
            code: string;
            /** @description one sentence: what failed, where, and what to do */
            detail: string;
            /** @description errors in the document that was sent */
            errors?: components["schemas"]["FieldError"][] | null;
            /** Format: int64 */
            status: number;
            /** @description name of the HTTP status */
            title: string;
            /** @description about:blank; see code */
            type: string;
        };
        Program: {
            /**
             * @description architecture, as Go names it
             * @example amd64
             */
            arch: string;
            /**
             * @description operating system, as Go names it
             * @example linux
             */
            os: string;
        };
        ProjectNotify: {
            /** @description secrets are returned encrypted, and may be sent back encrypted */
            notify: components["schemas"]["Notify"][];
            project: string;
            /** @description signs the requests of notifications without their own secret (Standard Webhooks) */
            signing_secret: string;
        };
        ProjectRetention: {
            /** @example 1000 */
            artifacts?: string;
            /** @example 30d */
            jobs?: string;
            /** @example forever */
            late_reports?: string;
            /** @example 7d,50GiB */
            logs?: string;
            project: string;
        };
        Prune: {
            artifacts: components["schemas"]["PruneCount"];
            /** @description some of the jobs */
            examples?: number[] | null;
            jobs: components["schemas"]["PruneCount"];
            late_reports: components["schemas"]["PruneCount"];
            logs: components["schemas"]["PruneCount"];
            uploads: components["schemas"]["PruneCount"];
            workers: components["schemas"]["PruneCount"];
        };
        PruneCount: {
            /**
             * @description a file that several jobs have counts for each
             * @example 1073741824
             */
            bytes?: number;
            /** @description some of the workers */
            names?: string[] | null;
            /**
             * Format: int64
             * @description jobs, or jobs with logs or artifacts, files, reports or workers
             */
            number: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            oldest_at?: string;
            /**
             * Format: int64
             * @description of the jobs
             */
            tasks?: number;
        };
        PruneRequest: {
            /** @description only return what would be deleted */
            dry_run?: boolean | null;
            /** @description limits for this prune, in place of those of the policies */
            keep?: components["schemas"]["RetentionPolicy"] | null;
            /** @description absent means all projects, uploads and workers */
            project?: string | null;
        };
        Python: {
            extras?: string[] | null;
            groups?: string[] | null;
            packages?: string[] | null;
            project?: string;
            requirements?: string;
            version?: string;
        };
        Rate: {
            /**
             * Format: double
             * @description those of finished that failed or timed out
             */
            failed: number;
            /**
             * Format: double
             * @description in any final state
             */
            finished: number;
            /** Format: double */
            started: number;
        };
        Readiness: {
            /** @description gateways to other systems; a failing gateway does not make the server unready */
            gateways?: components["schemas"]["Gateway"][] | null;
            /** @enum {string} */
            status: "ok";
        };
        Request: {
            /** Format: double */
            cpus?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            disk?: number;
            gpus?: components["schemas"]["GPURequest"];
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            /** Format: int64 */
            pids?: number;
        };
        Resources: {
            /** Format: double */
            cpus: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            disk: number;
            gpus?: components["schemas"]["GPU"][] | null;
            /** Format: int64 */
            max_tasks?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory: number;
            /** Format: int64 */
            slots: number;
        };
        Retention: {
            defaults: components["schemas"]["RetentionPolicy"];
            /**
             * Format: date-time
             * @description deleting by age waits until then, because the server was off for more than a week
             * @example 2026-01-02T15:04:05.000Z
             */
            delayed_until?: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            last_pass_at?: string;
            /** @description projects with a policy of their own */
            projects: components["schemas"]["ProjectRetention"][] | null;
            /**
             * Format: date-time
             * @description when the built-in defaults begin to apply after an upgrade; absent if they do
             * @example 2026-01-02T15:04:05.000Z
             */
            starts_at?: string;
            uploads: string;
            /**
             * Format: int64
             * @description removed jobs whose rows and files are being deleted, up to 1000
             */
            waiting_jobs: number;
            workers: string;
        };
        RetentionPolicy: {
            /** @example 1000 */
            artifacts?: string | null;
            /** @example 30d */
            jobs?: string | null;
            /** @example forever */
            late_reports?: string | null;
            /** @example 7d,50GiB */
            logs?: string | null;
        };
        Retries: {
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            backoff?: number | string;
            /** Format: int64 */
            max?: number;
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            max_backoff?: number | string;
            on?: string[] | null;
        };
        RotateKey: {
            /**
             * @description how long old secrets still work: at most 30d; absent or 0 means that they end at once
             * @example 90
             */
            overlap?: number | string | null;
            /**
             * @description new validity of the key; absent or 0 means that its expiry stays
             * @example 90
             */
            ttl?: number | string | null;
        };
        Sample: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** Format: double */
            cpu?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            disk?: number;
            gpus?: components["schemas"]["GPUSample"][] | null;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory?: number;
            /** Format: double */
            net_in?: number;
            /** Format: double */
            net_out?: number;
            /** Format: int64 */
            pids?: number;
            /** Format: double */
            read?: number;
            /** Format: double */
            write?: number;
        };
        Schedule: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at: string;
            /** @example 30 2 * * * */
            cron: string;
            /**
             * @description what happens to runs whose time passed while the server did not run
             * @enum {string}
             */
            missed: "skip" | "run-once" | "run-all";
            name: string;
            /** @description the next 3 runs; empty while it is paused */
            next: string[];
            /**
             * @description what happens at the time of a run if earlier jobs have not ended
             * @enum {string}
             */
            overlap: "allow" | "forbid" | "replace";
            /** @description id of the key whose rights the jobs have: the one that created the schedule */
            owner: string;
            owner_name: string;
            paused: boolean;
            /** @description why runs are or will be refused; not in lists */
            problem?: string;
            project: string;
            /** @description the last 100, the newest first; not in lists */
            runs?: components["schemas"]["ScheduleRun"][] | null;
            /** @description of the jobs; not in lists */
            spec?: components["schemas"]["Spec"];
            /**
             * @description of the IANA database
             * @example Europe/Berlin
             */
            timezone: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            updated_at: string;
        };
        ScheduleRun: {
            /**
             * Format: date-time
             * @description the time for which it was planned; of several, the last
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            decided_at: string;
            /** Format: int64 */
            job?: number;
            /** @description a user started it */
            manual?: boolean;
            /** @description why no job was started */
            message?: string;
            /**
             * Format: int64
             * @description number of the decision, from 1
             */
            n: number;
            /** @enum {string} */
            outcome: "started" | "skipped" | "refused";
        };
        Schedules: {
            schedules: components["schemas"]["Schedule"][];
        };
        Script: {
            args?: string[] | null;
            file?: string;
            interpreter?: string[] | null;
            sha256?: string;
            text?: string;
            url?: string;
        };
        Secret: {
            name: string;
            /** @description why the server cannot read the value; tasks that name the secret wait */
            problem?: string;
            project: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            updated_at: string;
            /** @description name of the key that set it */
            updated_by: string;
            /**
             * Format: int64
             * @description how often it was set
             */
            version: number;
            /** @description only workers with all of these tags are given it */
            workers?: string[] | null;
        };
        Secrets: {
            secrets: components["schemas"]["Secret"][];
        };
        Selection: {
            /**
             * @description task numbers and ranges; absent means all
             * @example 0-9,12
             */
            tasks?: string | null;
        };
        Series: {
            /**
             * Format: int64
             * @description 0 means none yet
             */
            attempt: number;
            /** @description Last-Event-ID with which server-sent events resume after these samples */
            next: string;
            samples: components["schemas"]["Sample"][];
            /** @description usage is derived from the samples, because it was not reported (yet), and has no cost */
            so_far?: boolean;
            /**
             * @description of the task
             * @enum {string}
             */
            state: "waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped";
            /**
             * Format: int64
             * @description number of recorded samples; samples has fewer if they were merged
             */
            taken: number;
            task: string;
            /** @description as reported at the end of the attempt, else derived from the samples so far */
            usage?: components["schemas"]["Usage"];
        };
        Session: {
            /** @description an API key */
            token: string;
        };
        SessionGrant: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            exchange: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at: string;
            signature: string;
            token: string;
        };
        SessionRequest: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            exchange: string;
            nonce: string;
            public_key: string;
            server: string;
            signature: string;
            worker: string;
        };
        Share: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at: string;
            /** @description id of the key */
            key: string;
            /** @description key of the link; it is not returned again */
            secret: string;
            /**
             * @description link, relative to the server's root: the key is in its fragment, which browsers do not send
             * @example /share#mst_viewer_…
             */
            url: string;
        };
        SignIn: {
            /** @description whether programs without a browser can sign users in by a code that these enter elsewhere */
            device: boolean;
            /**
             * @description name of the OpenID Connect provider; absent if there is none
             * @example accounts.example.com
             */
            provider?: string;
        };
        Signature: {
            signature: string;
            statement: string;
        };
        Spec: {
            labels?: {
                [key: string]: string;
            };
            /** Format: int64 */
            max_failures?: number;
            name?: string;
            notify?: components["schemas"]["Notify"][] | null;
            on_failure?: string;
            params?: {
                [key: string]: components["schemas"]["Param"];
            };
            /** Format: int64 */
            priority?: number;
            project?: string;
            signature?: components["schemas"]["Signature"];
            tasks: components["schemas"]["TaskSpec"][] | null;
        };
        StageStates: {
            /** @description number of tasks in each state */
            counts: {
                assigned?: number;
                cancelled?: number;
                cancelling?: number;
                failed?: number;
                queued?: number;
                running?: number;
                skipped?: number;
                succeeded?: number;
                timed_out?: number;
                waiting?: number;
            };
            /**
             * Format: date-time
             * @description end of its last task
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            /**
             * Format: int64
             * @description number of its first task
             */
            first: number;
            /**
             * Format: int64
             * @description number of the first task in runs or packed
             */
            from: number;
            /** Format: int64 */
            index: number;
            kind: string;
            /**
             * Format: int64
             * @description number of tasks in runs or packed
             */
            length: number;
            name: string;
            /** @description stages that must succeed first */
            needs: string[];
            /** @description in place of runs if that is shorter: Base64 of 4 bits per task, low half byte first */
            packed?: string;
            /** @description run-length encoded states by task number: pairs of a state and the number of consecutive tasks in it */
            runs?: (number[] | null)[] | null;
            /** Format: int64 */
            size: number;
            /**
             * Format: date-time
             * @description start of its first attempt
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
        };
        States: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** Format: int64 */
            job: number;
            /** @description Last-Event-ID with which server-sent events resume after these states */
            seq: string;
            stages: components["schemas"]["StageStates"][];
            /** @description names of states; runs and packed have positions in this list */
            states: string[];
        };
        Sweep: {
            parameters: {
                [key: string]: (string | number | boolean)[] | components["schemas"]["SweepParameter"];
            };
            search: string;
            /** Format: int64 */
            seed?: number;
            /** Format: int64 */
            trials?: number;
        };
        SweepParameter: {
            log?: boolean;
            /** Format: double */
            max?: number;
            /** Format: double */
            min?: number;
            /** Format: double */
            step?: number;
            values?: string[] | null;
        };
        Task: {
            artifacts?: components["schemas"]["Artifact"][] | null;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            assigned_at?: string;
            /** Format: int64 */
            attempt?: number;
            cached?: boolean;
            checkpoint?: string;
            /** Format: int64 */
            crashes?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            created_at?: string;
            element?: string;
            /** Format: int64 */
            exit_code?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            grant?: components["schemas"]["Grant"];
            /** Format: int64 */
            group: number;
            id: string;
            image?: string;
            /** Format: int64 */
            index: number;
            /** Format: int64 */
            job: number;
            kind: string;
            /** Format: int64 */
            log_size?: number;
            message?: string;
            metrics?: {
                [key: string]: number;
            };
            name: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            not_before?: string;
            origin?: string;
            /** Format: double */
            progress?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            queued_at?: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "condition_false" | "job_stopped" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            result?: unknown;
            /** Format: int64 */
            retried?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            /** @enum {string} */
            state: "waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped";
            step?: string;
            usage?: components["schemas"]["Usage"];
            worker?: string;
            worker_name?: string;
        };
        TaskCache: {
            /** @description between the task and the nearest entry */
            differences?: components["schemas"]["CacheDifferent"][] | null;
            key?: string;
            /** @description of a miss: the entry of another task that differs least, among the newest 1000 */
            nearest?: components["schemas"]["CacheEntry"];
            /** @description of a hit: the task that ran */
            origin?: string;
            /**
             * @description off: the task does not use the cache; pending: it was not looked up yet, or waits for an identical task
             * @enum {string}
             */
            outcome: "off" | "pending" | "hit" | "miss";
            summary: string;
            task: string;
        };
        TaskEvent: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** Format: int64 */
            attempt?: number;
            message?: string;
            /** @description outcome of the ended attempt */
            outcome?: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "condition_false" | "job_stopped" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            /**
             * @description ended is about an attempt, finished about the task
             * @enum {string}
             */
            type: "created" | "queued" | "assigned" | "started" | "checkpoint" | "ended" | "retry" | "finished";
            worker?: string;
        };
        TaskEvents: {
            /** @description in order of time; only the last ones of a task with many attempts */
            events: components["schemas"]["TaskEvent"][];
        };
        TaskSecret: {
            env?: string;
            file?: string;
            name: string;
            registry?: string;
        };
        TaskSpec: {
            allow_hosts?: string[] | null;
            /**
             * @description numbers and ranges, one task per number, or a reference to a list
             * @example 1-1000
             * @example 0-9,20,30-39:3
             * @example ${prepare.result.shards}
             */
            array?: string;
            /**
             * @description true, seconds, or a string such as 12h or 7d
             * @example true
             */
            cache?: boolean | number | string;
            /** @description a string is the path */
            checkpoint?: string | components["schemas"]["Checkpoint"];
            container?: components["schemas"]["Container"];
            disconnect?: components["schemas"]["Disconnect"];
            env?: {
                [key: string]: string;
            };
            files?: string;
            /** @description a number is the size */
            gang?: number | components["schemas"]["Gang"];
            image?: string;
            input?: unknown;
            inputs?: components["schemas"]["Input"][] | null;
            isolation?: string;
            kill?: components["schemas"]["Kill"];
            kind?: string;
            launcher?: string;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            log_cap?: number;
            /** @description one task per combination; an axis is a list of values or a string of ranges */
            matrix?: {
                [key: string]: string | (string | number | boolean)[];
            };
            name?: string;
            needs?: string[] | null;
            network?: string;
            /** Format: int64 */
            nproc_per_node?: number;
            outputs?: string[] | null;
            python?: components["schemas"]["Python"];
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            queue_timeout?: number | string;
            resources?: components["schemas"]["Request"];
            retries?: components["schemas"]["Retries"];
            /** @description a list is executed directly, a string by sh -c */
            run?: string | string[];
            /** @description a string is the script's text */
            script?: string | components["schemas"]["Script"];
            secrets?: (string | components["schemas"]["TaskSecret"])[] | null;
            signed_by?: string;
            stdin?: string;
            sweep?: components["schemas"]["Sweep"];
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            timeout?: number | string;
            when?: string;
            where?: components["schemas"]["Where"];
        };
        Tasks: {
            /** @description cursor of the next page; absent at the end */
            next?: string;
            tasks: components["schemas"]["Task"][];
        };
        TestNotify: {
            /** @description URL of one of the project's notifications; absent means all */
            url?: string | null;
        };
        Usage: {
            /** Format: double */
            cost?: number;
            /** Format: double */
            cpu_avg: number;
            /** Format: double */
            cpu_peak?: number;
            /** Format: double */
            cpu_seconds: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            disk_peak?: number;
            /** Format: double */
            energy_wh?: number;
            /** Format: double */
            gpu_avg?: number;
            /** Format: double */
            gpu_peak?: number;
            /** Format: double */
            gpu_temp_peak?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory_avg?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            memory_peak?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            net_in?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            net_out?: number;
            /** Format: int64 */
            pids_peak?: number;
            /** Format: double */
            power_avg?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            read_bytes?: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            vram_peak?: number;
            /** Format: double */
            wall_seconds: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            write_bytes?: number;
        };
        Used: {
            /**
             * Format: double
             * @description cores: load of each machine times the cores that its worker offers
             */
            cpus: number;
            /**
             * @description bytes, or a string such as 512MiB or 10GB
             * @example 1073741824
             */
            gpu_memory: number;
            /**
             * Format: double
             * @description sum of the utilization of devices, each 0 to 1
             */
            gpus: number;
            /**
             * @description bytes in use on the machines, by any program
             * @example 1073741824
             */
            memory: number;
            /**
             * Format: double
             * @description watts of all devices
             */
            power: number;
        };
        Verdict: {
            filter?: string;
            fits: boolean;
            name: string;
            why?: string;
            worker: string;
        };
        Where: {
            /** Format: double */
            max_price?: number;
            not?: string[] | null;
            tags?: string[] | null;
            workers?: string[] | null;
        };
        Whoami: {
            /** @description platform of /download/muster; absent if the key cannot join workers */
            download?: components["schemas"]["Program"];
            /**
             * Format: date-time
             * @description expiry of the key; absent means never
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at?: string;
            /**
             * Format: int64
             * @description the only job that the key can read; absent means all
             */
            job?: number;
            key: string;
            /** @description the key is a join token with uses, tags or approval, which gateways do not take */
            limited?: boolean;
            name: string;
            /** @description permissions of the key, such as "submit jobs" */
            permissions: string[];
            project?: string;
            role: string;
            /** @description version of the server */
            version: string;
            worker?: string;
        };
        Worker: {
            address?: string;
            allow?: components["schemas"]["Allow"];
            constrained?: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            deadline?: string;
            draining?: boolean;
            free?: components["schemas"]["Resources"];
            health?: components["schemas"]["WorkerHealth"];
            /**
             * @description seconds, or a string such as 90s, 10m, 1h30m or 7d
             * @example 90
             */
            heartbeat?: number | string;
            id: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            joined_at?: string;
            kinds?: string[] | null;
            labels?: {
                [key: string]: string;
            };
            lacks?: string[] | null;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            last_seen_at?: string;
            load?: components["schemas"]["Load"];
            name: string;
            paused?: boolean;
            pending?: boolean;
            /** Format: double */
            price?: number;
            projects?: string[] | null;
            quarantined?: string;
            resources: components["schemas"]["Resources"];
            /** Format: int64 */
            running: number;
            state: string;
            tags?: string[] | null;
            tasks?: string[] | null;
            token?: string;
            version?: string;
        };
        WorkerCounts: {
            /** Format: int64 */
            active: number;
            /**
             * Format: int64
             * @description connected workers that currently accept no new tasks by themselves
             */
            constrained: number;
            /** Format: int64 */
            draining: number;
            /** Format: int64 */
            gone: number;
            /** Format: int64 */
            paused: number;
            /**
             * Format: int64
             * @description connected workers that wait for approval
             */
            pending: number;
            /** Format: int64 */
            total: number;
            /** Format: int64 */
            unreachable: number;
        };
        WorkerHealth: {
            attempt: string;
            avoided?: string;
            /** @enum {string} */
            reason: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "condition_false" | "job_stopped" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            /** Format: double */
            score: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            until?: string;
        };
        Workers: {
            /** @description cursor of the next page; absent at the end */
            next?: string;
            workers: components["schemas"]["Worker"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    "list-audit-records": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                /** @description recorded then or later */
                since?: string;
                /** @description recorded then or earlier */
                until?: string;
                /** @description id or name of the caller's key */
                key?: string;
                operation?: string;
                object?: string;
                project?: string;
                outcome?: "allowed" | "denied" | "failed";
                /** @description only records with a higher number */
                after?: number;
                order?: "newest" | "oldest";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditPage"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "export-audit-log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "verify-audit-log": {
        parameters: {
            query?: {
                /** @description a head that was noted earlier, HASH@SEQ: also verify that the log has this record */
                head?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditVerification"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    backup: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "missing-blobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Hashes"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Missing"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-blob": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "put-blob": {
        parameters: {
            query?: never;
            header?: {
                /** @description offset of the body in the blob: the number of bytes that the server has */
                "Upload-Offset"?: number;
            };
            path: {
                sha256: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": string;
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "head-blob": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "check-blob": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BlobCheck"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "watch-events": {
        parameters: {
            query?: {
                /** @description only events of this job and its tasks */
                job?: string;
                /** @description only events of these types and resync events; default: all */
                type?: ("job" | "task" | "worker")[] | null;
            };
            header?: {
                /** @description resume after this event */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-history": {
        parameters: {
            query?: {
                /** @description id, or name if it is unique; absent means the fleet */
                worker?: string;
                /** @description default: an hour before to */
                from?: string;
                /** @description default: now */
                to?: string;
                /** @description approximate maximum number of points */
                points?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["History"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-jobs": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                /** @description any of these */
                state?: ("waiting" | "queued" | "running" | "succeeded" | "failed" | "timed_out" | "cancelled")[] | null;
                project?: string;
                /** @description part of the name */
                name?: string;
                /** @description kind of all its stages */
                kind?: string;
                /** @description id of the key that submitted it */
                owner?: string;
                /** @description created then or later */
                since?: string;
                /** @description created then or earlier */
                until?: string;
                /** @description sort order by creation */
                order?: "newest" | "oldest";
                /** @description KEY=VALUE; the job must have all of them */
                label?: string[] | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Jobs"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "submit-job": {
        parameters: {
            query?: {
                /** @description an earlier job of the project, whose results the job takes for the stages before from */
                rerun?: string;
                /** @description with rerun: the first stage that runs again, with all that need it */
                from?: string;
            };
            header?: {
                /** @description repeating a request with the same key and body returns the same job */
                "Idempotency-Key"?: string;
                /** @description parent span of the job (W3C Trace Context) */
                traceparent?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Spec"] | components["schemas"]["FlatSpec"];
                "application/yaml": components["schemas"]["Spec"] | components["schemas"]["FlatSpec"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "remove-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "cancel-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Selection"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "edit-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["JobEdit"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "keep-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "unkeep-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-late-reports": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Late"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-job-notifications": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                state?: "pending" | "delivered" | "failed";
            };
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deliveries"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-previous-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "retry-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Selection"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "share-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewShare"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Share"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "unshare-job": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-job-states": {
        parameters: {
            query?: {
                /** @description number of the first task in the answer; default: 0 */
                from?: number;
                /** @description number of the last task; default: all */
                to?: number;
            };
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["States"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-tasks": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                /** @description any of these */
                state?: ("waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped")[] | null;
                /** @description task numbers and ranges */
                tasks?: string;
                /** @description only tasks that were assigned to a worker; a page may have fewer than limit */
                attempted?: boolean;
            };
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tasks"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-job-usage": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description job number */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobUsage"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Keys"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-key": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewKey"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeKey"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "revoke-key": {
        parameters: {
            query?: {
                /** @description also revoke the keys of the workers that joined by this key, which may be revoked already */
                workers?: boolean;
            };
            header?: never;
            path: {
                /** @description id of a key */
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "rotate-key": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id of a key */
                key: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RotateKey"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeKey"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-kinds": {
        parameters: {
            query?: {
                /** @description only custom kinds of workers */
                own?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kinds"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-kind": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                kind: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Kind"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-notifications": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                state?: "pending" | "delivered" | "failed";
                /** @description only of this project */
                project?: string;
                /** @description only of this job */
                job?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deliveries"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-sign-in": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignIn"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "begin-device-sign-in": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeviceSignIn"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "finish-device-sign-in": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DeviceHandle"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeviceResult"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "begin-sign-in": {
        parameters: {
            query?: {
                /** @description path of the page after the sign-in; default: / */
                next?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Found */
            302: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-overview": {
        parameters: {
            query?: {
                /** @description false omits the list of devices */
                gpus?: "true" | "false";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Overview"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "plan-job": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Spec"] | components["schemas"]["FlatSpec"];
                "application/yaml": components["schemas"]["Spec"] | components["schemas"]["FlatSpec"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Plan"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-cache": {
        parameters: {
            query?: {
                /** @description maximum number of entries */
                limit?: number;
            };
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Cache"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "clear-cache": {
        parameters: {
            query?: {
                /** @description only results of tasks of this job */
                job?: number;
                /** @description only results of this kind */
                kind?: string;
                /** @description only results of stages with this name */
                stage?: string;
                /** @description only the results whose keys begin with this */
                key?: string;
            };
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CacheCleared"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-notify": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectNotify"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "put-notify": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Notifications"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectNotify"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-notify": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "test-notify": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["TestNotify"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deliveries"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "put-retention": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RetentionPolicy"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectRetention"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-retention": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-schedule": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSchedule"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-schedule": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-schedule": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "pause-schedule": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "resume-schedule": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "run-schedule": {
        parameters: {
            query?: never;
            header?: {
                /** @description repeating a request with the same key returns the same job */
                "Idempotency-Key"?: string;
            };
            path: {
                project: string;
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Created */
            201: {
                headers: {
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-secrets": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Secrets"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "put-secret": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                secret: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSecret"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Secret"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-secret": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                project: string;
                secret: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    prune: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PruneRequest"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Prune"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-retention": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Retention"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-schedules": {
        parameters: {
            query?: {
                project?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedules"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-job-schema": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/schema+json": unknown;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Session"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    "Set-Cookie"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Whoami"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "delete-session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    "Set-Cookie"?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-all-tasks": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows */
                limit?: number;
                /** @description any of these; default: assigned, running and cancelling */
                state?: ("waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped")[] | null;
                project?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tasks"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-task": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-artifacts": {
        parameters: {
            query?: {
                /** @description default: the last one */
                attempt?: number;
            };
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Artifacts"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-artifact": {
        parameters: {
            query?: {
                /** @description default: the last one */
                attempt?: number;
                /** @description let browsers save the file and not show it */
                download?: boolean;
                /** @description of a signed URL: when it ends, in seconds since 1970 */
                expires?: number;
                /** @description of a signed URL: hash of the file */
                sha256?: string;
                /** @description of a signed URL: its signature */
                signature?: string;
            };
            header?: never;
            path: {
                /** @description task id */
                task: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-attempts": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Attempts"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "explain-cache": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskCache"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-task-events": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TaskEvents"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "exec-task": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "explain-task": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Explanation"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-logs": {
        parameters: {
            query?: {
                /** @description default: the last one; when following, also later ones */
                attempt?: number;
                stream?: "stdout" | "stderr" | "all";
                /** @description start at this offset, from the id of an event (ATTEMPT-OFFSET) */
                offset?: number;
                /** @description start with the last lines */
                tail?: number;
                /** @description only output since this time, by the worker's clock */
                since?: string;
                /** @description let browsers save the text as a file */
                download?: boolean;
                /** @description continue until the task has ended; default for server-sent events: true */
                follow?: "true" | "false";
            };
            header?: {
                /** @description resume after this event; attempt, offset and tail are ignored then */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                    "text/plain": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "search-logs": {
        parameters: {
            query?: {
                /** @description default: the last one */
                attempt?: number;
                /** @description any place in the log; it is moved back to the beginning of a record. -1 means the end, or the beginning if the direction is forward */
                offset?: number;
                direction?: "forward" | "backward";
                stream?: "stdout" | "stderr" | "all";
                /** @description text to find */
                q?: string;
                /** @description q is a regular expression in the syntax of RE2 */
                regex?: boolean;
                /** @description match case */
                case?: boolean;
                /** @description find error lines of programs, in place of q */
                errors?: boolean;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogMatches"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-log-window": {
        parameters: {
            query?: {
                /** @description default: the last one */
                attempt?: number;
                /** @description any place in the log; it is moved back to the beginning of a record. -1 means the end, or the beginning if the direction is forward */
                offset?: number;
                direction?: "forward" | "backward";
                stream?: "stdout" | "stderr" | "all";
                /** @description maximum bytes of output; a longer record is returned alone */
                bytes?: number;
            };
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogWindow"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-task-metrics": {
        parameters: {
            query?: {
                /** @description only this attempt; default: all */
                attempt?: number;
                /** @description maximum number of points per attempt; fewer if the answer would exceed about 16 MiB */
                points?: number;
            };
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Metrics"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-task-spec": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ElementSpec"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-usage": {
        parameters: {
            query?: {
                /** @description default: the last one; when following, also later ones */
                attempt?: number;
                /** @description maximum number of samples. If there are more, adjacent samples are merged: the result has the time of the last one and the maximum of each value. Server-sent events are not merged */
                points?: number;
                /** @description continue until the task has ended; default for server-sent events: true */
                follow?: "true" | "false";
            };
            header?: {
                /** @description resume after this event, or after next of an answer */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description task id */
                task: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Series"];
                    "text/event-stream": unknown;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    whoami: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Whoami"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "list-workers": {
        parameters: {
            query?: {
                /** @description next of the previous page */
                cursor?: string;
                /** @description maximum number of rows; absent means all */
                limit?: number;
                /** @description only these workers */
                id?: string[] | null;
                /** @description basic omits kinds, allow, lacks, projects, and the GPUs of free and load */
                view?: "full" | "basic";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Workers"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "remove-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "approve-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "drain-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Drain"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "heal-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Heal"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "pause-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Pause"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "reset-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeKey"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "resume-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if it is unique */
                worker: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Worker"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "download-muster": {
        parameters: {
            query?: {
                /** @description required operating system */
                os?: string;
                /** @description required architecture */
                arch?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    healthz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "get-content": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description CIDv0, or the CIDv1 of the same file */
                cid: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "join-worker": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["JoinRequest"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Joined"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "register-worker-key": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyRequest"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Joined"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    "create-worker-session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SessionRequest"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionGrant"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Readiness"];
                };
            };
            /** @description An error */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
