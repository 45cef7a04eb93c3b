// Generated from openapi.json by npm run gen. Do not edit.
export interface paths {
    "/api/v1/blobs/missing": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Say which of these blobs are not here */
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
        /** Upload a blob, or go on after the bytes that are here */
        put: operations["put-blob"];
        post?: never;
        delete?: never;
        options?: never;
        /** Say how much of a blob is here: 404 with Upload-Offset, if not all */
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
        /** Report that a download had other bytes: the file is read, and set aside if it is damaged */
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
        /** Watch what changes, as server-sent events; a resync event says: read the state anew, events were missed */
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
        /** Show how the fleet or a worker was loaded: of the last hour every 10 seconds, of 12 hours every minute, of a week every 10 minutes. A key that is bound to a project does not see the fleet's numbers of tasks */
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
        /** List jobs, newest first unless another order is asked for */
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
        delete?: never;
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
        /** Stop a job, or some of its tasks */
        post: operations["cancel-job"];
        delete?: never;
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
        /** List the reports that came after their attempts had been given up: at most 100 */
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
        /** Show the newest job of the same project and name that is older, with its spec and stages */
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
        /** Queue ended tasks that did not succeed again */
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
        /** Make a link with which anyone can read this job, and nothing else, until it expires */
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
        /** Show the state of every task of a job, in few bytes: equal neighbours are counted */
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
        /** List the tasks of a job by number */
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
        /** Show what all ended attempts of a job used together */
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
        /** List the API keys */
        get: operations["list-keys"];
        put?: never;
        /** Make an API key; its secret is shown this once */
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
        /** Make an API key useless at once */
        delete: operations["revoke-key"];
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
        /** List the kinds of tasks, and how many workers offer each */
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
        /** Show what a kind of tasks takes as input, and who offers it */
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
    "/api/v1/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show capacity and use of the fleet, tasks by state, GPUs, cost, and what needs attention. It is up to a second old. A key that is bound to a project sees only that project's tasks and jobs in it */
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
        /** Check a job, and say where its tasks would run now */
        post: operations["plan-job"];
        delete?: never;
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
        /** Show the notifications of a project, and what signs them */
        get: operations["get-notify"];
        /** Replace the notifications of a project */
        put: operations["put-notify"];
        post?: never;
        /** Remove the notifications of a project */
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
        /** Send a test, once, and say what came of it */
        post: operations["test-notify"];
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
        /** Show the JSON Schema (2020-12) of a job file, for editors */
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
        /** Sign a browser in: check an API key and set it as a cookie that scripts cannot read */
        post: operations["create-session"];
        /** Sign a browser out: remove the cookie */
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
        /** List the tasks of all jobs that are in certain states, those of the newest job first */
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
        /** List the files of an attempt */
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
        /** Download a file of an attempt, or ranges of it */
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
        /** List all executions of a task */
        get: operations["list-attempts"];
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
        /** List the steps in the life of a task */
        get: operations["list-task-events"];
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
        /** Say why a task stands where it stands */
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
        /** Show output as text, or as server-sent events (Accept: text/event-stream or follow=true) */
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
        /** Search a log: at most 2 seconds or 256 MiB of it at a time */
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
        /** Show a part of a log of any length: the records from an offset on, or those before it */
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
        /** Show what a task reported over time: progress, steps, metrics and checkpoints of its attempts */
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
        /** Show what a task runs: its spec with the values of its element */
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
        /** Show what a task used over time, or watch it as server-sent events (Accept: text/event-stream or follow=true) */
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
        /** Say who the caller is */
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
        /** List the workers */
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
        /** Forget a worker that is away, and revoke its key */
        delete: operations["remove-worker"];
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
        /** Let a worker finish what it has and then leave; what still runs at the deadline goes on elsewhere */
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
        /** Let a worker look at quarantined GPUs again: those that are well are given to tasks from then on */
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
        /** Give a worker nothing new, for a while or until it is resumed. paused is true until then, also while the worker is unreachable or gone: it comes back paused */
        post: operations["pause-worker"];
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
        /** Take a pause or a drain back */
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
        /** Download the server's own executable, to start a worker with it on a machine of the same system */
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
        /** Say that the process answers */
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
        /** Download the file that a result calls ipfs://{cid}, or ranges of it */
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
        /** Exchange a join token for a worker's own id and key */
        post: operations["join-worker"];
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
        /** Say whether the server can do its work: engine and store answer */
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
            mounts?: string[] | null;
            users?: string[] | null;
        };
        Amounts: {
            /**
             * Format: double
             * @description cores
             */
            cpus: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            gpu_memory: number;
            /**
             * Format: int64
             * @description devices; reserved: of which a task has all or a share
             */
            gpus: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
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
            /** @description when its checkpoint was saved: at most 1000 of these times */
            checkpoints: string[];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            finished_at?: string;
            /** @description absent while it runs */
            outcome?: string;
            /** @description in order of time; a point has only what was reported since the point before. Two points stand for several if there are more than was asked for: they have the lowest and the highest value of each metric */
            points: components["schemas"]["Point"][];
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            /**
             * Format: int64
             * @description how many points were kept; more than there are in points if those are thinned
             */
            taken: number;
        };
        Attempts: {
            attempts: components["schemas"]["Attempt"][];
        };
        Attention: {
            /**
             * @description what helps most
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
             * @description if there, this is not about one thing: it stands for so many more of its kind that are not listed, the most severe of which has this severity
             */
            more?: number;
            /** @enum {string} */
            severity: "critical" | "warning" | "info";
            worker?: string;
            worker_name?: string;
        };
        BlobCheck: {
            /**
             * @description damaged: it is set aside, upload it again; unreadable: the server's disk cannot read it now, ask again later or upload it again; unchecked: ask again later
             * @enum {string}
             */
            verdict: "intact" | "damaged" | "unreadable" | "unchecked";
        };
        Checkpoint: {
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            every?: number | string;
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
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
            /** @description host and port of the URL, the rest of which may be a secret */
            host: string;
            /** @description the webhook-id of the request */
            id: string;
            /**
             * Format: int64
             * @description absent for a test
             */
            job?: number;
            /**
             * Format: date-time
             * @description of the next attempt
             * @example 2026-01-02T15:04:05.000Z
             */
            next_at?: string;
            preset?: string;
            project: string;
            /**
             * @description failed: it was given up
             * @enum {string}
             */
            state: "pending" | "delivered" | "failed";
            /**
             * Format: int64
             * @description HTTP status of the last attempt; absent if there was no answer
             */
            status?: number;
            /**
             * @description of the last attempt
             * @example 90
             */
            took?: number | string;
            /**
             * Format: date-time
             * @description of the last attempt
             * @example 2026-01-02T15:04:05.000Z
             */
            tried_at?: string;
        };
        Disconnect: {
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            grace?: number | string;
            then?: string;
        };
        DiskLoad: {
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            free: number;
            low?: boolean;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            total: number;
        };
        Drain: {
            /**
             * @description from now; what still runs then is stopped and goes on elsewhere, from its checkpoint if it has one; 0 means at once, absent means never
             * @example 90
             */
            deadline?: number | string | null;
        };
        ElementSpec: {
            /** @description of the container in which it ran, by its digest */
            image?: string;
            /** @description false while references to other stages are not resolved, because those have not finished */
            resolved: boolean;
            /** @description with the values of this element of an array or matrix, and the results of other stages once those are known */
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
             * @description numbers and ranges, one task for each
             * @example 1-1000
             * @example 0-9,20,30-39:3
             */
            array?: string;
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
            /** @description one task for each combination; an axis is a list of values or a text of ranges */
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
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            queue_timeout?: number | string;
            resources?: components["schemas"]["Request"];
            retries?: components["schemas"]["Retries"];
            /** @description a list is executed directly, a string by sh -c */
            run?: string | string[];
            /** @description a string is the text */
            script?: string | components["schemas"]["Script"];
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            timeout?: number | string;
            where?: components["schemas"]["Where"];
        };
        GPU: {
            /** Format: int64 */
            index: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
            /** @description of the system, such as qubix */
            name: string;
            /** @description ok, or why it cannot work now; only requests with a valid key see the reason */
            status: string;
        };
        Grant: {
            /** Format: double */
            cpus?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            disk?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            gpu_memory?: number;
            gpus?: string[] | null;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory?: number;
            /** Format: int64 */
            pids?: number;
            /** Format: int64 */
            slots?: number;
        };
        Group: {
            /** @description tasks in each state */
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
        };
        Hashes: {
            sha256: string[];
        };
        Heal: {
            /** @description by UUID or index; absent means all that are quarantined */
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
            /** @description one list for each figure, with a number or null for each of times */
            series: {
                [key: string]: (number | null)[] | null;
            };
            /**
             * Format: int64
             * @description seconds between two points; each point is the mean of the step that begins at its time
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
            /** Format: double */
            cost?: number;
            /** @description tasks in each state */
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
            /** Format: int64 */
            id: number;
            kind?: string;
            labels?: {
                [key: string]: string;
            };
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
        };
        JobUsage: {
            /**
             * Format: int64
             * @description how many ended attempts this is the sum of
             */
            attempts: number;
            /**
             * Format: double
             * @description the workers' prices times the wall time
             */
            cost: number;
            /** Format: double */
            cpu_seconds: number;
            /**
             * Format: double
             * @description of the devices
             */
            energy_wh: number;
            /**
             * Format: double
             * @description wall time times granted devices, also where a device was shared
             */
            gpu_seconds: number;
            /** Format: int64 */
            job: number;
            /**
             * @description the most that one attempt had
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
            name: string;
        };
        Joined: {
            key: string;
            worker: string;
        };
        Key: {
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
             * @description the only job that it may read; absent means all
             */
            job?: number;
            name: string;
            /** @description the only project that it may touch; absent means all */
            project?: string;
            /** @enum {string} */
            role: "admin" | "submitter" | "viewer" | "worker" | "join";
            /** @description for a worker's own key */
            worker?: string;
        };
        Keys: {
            keys: components["schemas"]["Key"][];
        };
        Kill: {
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
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
             * @description how many more offered it when they were last there
             */
            away?: number;
            /** @description it saves its state, and goes on from there on any worker */
            checkpoint?: boolean;
            /**
             * Format: int64
             * @description how many of both have another definition of this name
             */
            differ?: number;
            /** @description JSON Schema (2020-12) of the input; absent: it takes none */
            input?: unknown;
            /** @description fields of the input: tasks that agree in them are served by one loaded model */
            merge_key?: string[] | null;
            name: string;
            /**
             * Format: int64
             * @description how many workers that are there offer it
             */
            offered: number;
            /** @description kind custom runs it, too, by its name */
            operation?: boolean;
            /** @description it does not come with Muster: owners of workers added it */
            own?: boolean;
            /** @description what a task gets that asks for nothing of that sort */
            resources?: components["schemas"]["Request"];
            /**
             * @description whether a task of it has a command of its own
             * @enum {string}
             */
            run: "no" | "may" | "must";
            /** @description the Python runtime that its program uses */
            runtime?: string;
            /** @description those that offer it and are there; only where one kind is shown */
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
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            result?: unknown;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            started_at?: string;
            usage?: components["schemas"]["Usage"];
            worker: string;
        };
        Load: {
            /** Format: double */
            cpu: number;
            disk?: components["schemas"]["DiskLoad"];
            gpus?: components["schemas"]["GPULoad"][] | null;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description where in the log the record begins
             */
            offset: number;
            /** @enum {string} */
            stream: "stdout" | "stderr" | "system";
            /** @description the record, or 2 KiB of a longer one around what matches */
            text: string;
        };
        LogMatches: {
            /**
             * Format: int64
             * @description 0 means that there was none yet
             */
            attempt: number;
            /** @description there is nothing more to search in this direction now */
            done: boolean;
            /** @description in the order of the search: backward, the last one first */
            matches: components["schemas"]["LogMatch"][];
            /**
             * Format: int64
             * @description the offset at which a search in the same direction continues
             */
            scanned_to: number;
        };
        LogRecord: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** @description in place of text, where the output is not UTF-8 */
            bytes?: string;
            /**
             * Format: int64
             * @description where in the log the record begins
             */
            offset: number;
            /** @enum {string} */
            stream: "stdout" | "stderr" | "system";
            text?: string;
        };
        LogWindow: {
            /**
             * Format: int64
             * @description 0 means that there was none yet
             */
            attempt: number;
            /** @description nothing follows last, and nothing will: the attempt has ended and its log is complete */
            done: boolean;
            /**
             * Format: int64
             * @description where the window begins: ask backward from there for what is before it; 0 is the beginning of the log
             */
            first: number;
            /**
             * Format: int64
             * @description where the window ends: ask forward from there for what follows
             */
            last: number;
            /** @description in the order of the log. A window in which no record is of the wanted stream is empty, also in the middle of the log */
            records: components["schemas"]["LogRecord"][];
            /**
             * Format: int64
             * @description bytes of the log now, of all streams
             */
            size: number;
        };
        MadeKey: {
            key: components["schemas"]["Key"];
            /** @description the bearer token; it is not shown again */
            secret: string;
        };
        Metrics: {
            /** @description by number: the last 20, or the one that was asked for */
            attempts: components["schemas"]["AttemptMetrics"][];
            /**
             * @description of the task
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
            name: string;
            /** @description the only project that it may touch; absent means all */
            project?: string | null;
            /** @enum {string} */
            role: "admin" | "submitter" | "viewer" | "join";
            /**
             * @description how long it is valid; absent or 0 means for ever
             * @example 90
             */
            ttl?: number | string | null;
        };
        NewShare: {
            /**
             * @description how long the link is valid: at most 30d; default: 24h
             * @example 90
             */
            ttl?: number | string | null;
        };
        Notifications: {
            /** @description a secret is shown sealed, and may be sent back so */
            notify: components["schemas"]["Notify"][];
        };
        Notify: {
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
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
            /** @description of the job */
            name: string;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            queued_at: string;
            /** @description one sentence: why it waits */
            summary?: string;
            task: string;
        };
        Overview: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** @description what needs a person, the most severe first, at most 20 of each kind: where there are more, the last one of the kind says how many in more */
            attention: components["schemas"]["Attention"][];
            /**
             * Format: int64
             * @description how many things need a person, those that are not listed included
             */
            attention_total: number;
            /** @description what connected workers offer */
            capacity: components["schemas"]["Amounts"];
            /**
             * Format: double
             * @description prices of the workers that run tasks
             */
            cost_per_hour: number;
            /** @description devices of connected workers, at most 20,000 */
            gpus: components["schemas"]["OverviewGPU"][];
            /** @description the task that has been queued for longest; absent if none is queued */
            oldest_waiting?: components["schemas"]["Oldest"];
            /**
             * Format: double
             * @description prices of all connected workers
             */
            price_per_hour: number;
            /** @description tasks a second, over the last minute */
            rate: components["schemas"]["Rate"];
            /** @description of that, what running and assigned tasks were given */
            reserved: components["schemas"]["Amounts"];
            /** @description all tasks by state, those of ended jobs included */
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
            /** @description what the machines of connected workers did at their last heartbeats */
            used: components["schemas"]["Used"];
            workers: components["schemas"]["WorkerCounts"];
        };
        OverviewGPU: {
            /** Format: int64 */
            index: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory_used?: number;
            name: string;
            /**
             * Format: double
             * @description watts
             */
            power?: number;
            /** @description why it is given to no task */
            quarantined?: string;
            /**
             * Format: int64
             * @description that have all of it or a share
             */
            tasks: number;
            /**
             * Format: double
             * @description degrees Celsius
             */
            temperature?: number;
            /**
             * Format: double
             * @description share of the time in which it computed, 0 to 1
             */
            utilization?: number;
            uuid: string;
            worker: string;
            worker_name: string;
        };
        Pause: {
            /**
             * @description then it is resumed; absent means until somebody does
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
            /** @description stable: match on this */
            code: string;
            /** @description one sentence: what, where, what to do */
            detail: string;
            /** @description what is wrong in the document that was sent */
            errors?: components["schemas"]["FieldError"][] | null;
            /** Format: int64 */
            status: number;
            /** @description the HTTP status in words */
            title: string;
            /** @description about:blank: the code says more */
            type: string;
        };
        Program: {
            /**
             * @description that it runs on, as Go names it
             * @example amd64
             */
            arch: string;
            /**
             * @description that it runs on, as Go names it
             * @example linux
             */
            os: string;
        };
        ProjectNotify: {
            /** @description a secret is shown sealed, and may be sent back so */
            notify: components["schemas"]["Notify"][];
            project: string;
            /** @description signs the requests of this project and its jobs that have no secret of their own (Standard Webhooks) */
            signing_secret: string;
        };
        Python: {
            packages?: string[] | null;
            requirements?: string;
            version?: string;
        };
        Rate: {
            /**
             * Format: double
             * @description of finished, those that failed or timed out
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
            /** @description to other systems: one that cannot work does not make the server unready */
            gateways?: components["schemas"]["Gateway"][] | null;
            /** @enum {string} */
            status: "ok";
        };
        Request: {
            /** Format: double */
            cpus?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            disk?: number;
            gpus?: components["schemas"]["GPURequest"];
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            disk: number;
            gpus?: components["schemas"]["GPU"][] | null;
            /** Format: int64 */
            max_tasks?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory: number;
            /** Format: int64 */
            slots: number;
        };
        Retries: {
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            backoff?: number | string;
            /** Format: int64 */
            max?: number;
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            max_backoff?: number | string;
            on?: string[] | null;
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
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            disk?: number;
            gpus?: components["schemas"]["GPUSample"][] | null;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
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
        Script: {
            args?: string[] | null;
            file?: string;
            interpreter?: string[] | null;
            sha256?: string;
            text?: string;
            url?: string;
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
             * @description 0 means that there was none yet
             */
            attempt: number;
            /** @description the Last-Event-ID with which server-sent events go on after these samples */
            next: string;
            samples: components["schemas"]["Sample"][];
            /** @description usage was not reported, or not yet: it follows from the samples, and has no cost */
            so_far?: boolean;
            /**
             * @description of the task
             * @enum {string}
             */
            state: "waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped";
            /**
             * Format: int64
             * @description how many samples were taken; more than there are in samples if those are thinned
             */
            taken: number;
            task: string;
            /** @description as the attempt reported at its end, else what its samples tell so far */
            usage?: components["schemas"]["Usage"];
        };
        Session: {
            /** @description an API key */
            token: string;
        };
        Share: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at: string;
            /** @description id of the key */
            key: string;
            /** @description the key of the link, which is not shown again */
            secret: string;
            /**
             * @description the link, from the server's root: the key is in its fragment, which browsers do not send
             * @example /share#mst_viewer_…
             */
            url: string;
        };
        Spec: {
            labels?: {
                [key: string]: string;
            };
            name?: string;
            notify?: components["schemas"]["Notify"][] | null;
            /** Format: int64 */
            priority?: number;
            project?: string;
            tasks: components["schemas"]["TaskSpec"][] | null;
        };
        StageStates: {
            /** @description tasks in each state */
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
             * @description when its last task ended
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
             * @description how many tasks are in runs or packed
             */
            length: number;
            name: string;
            /** @description stages that must succeed first */
            needs: string[];
            /** @description in place of runs where that is shorter: Base64 of one half byte for each task, the low one first */
            packed?: string;
            /** @description states in the order of the tasks' numbers, as pairs of a state and how many tasks that follow each other are in it */
            runs?: (number[] | null)[] | null;
            /** Format: int64 */
            size: number;
            /**
             * Format: date-time
             * @description when the first of its attempts started
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
            /** @description the Last-Event-ID with which server-sent events go on after these states */
            seq: string;
            stages: components["schemas"]["StageStates"][];
            /** @description the names of states; runs and packed have positions in this list */
            states: string[];
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
            /** Format: double */
            progress?: number;
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            queued_at?: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
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
        TaskEvent: {
            /**
             * Format: date-time
             * @example 2026-01-02T15:04:05.000Z
             */
            at: string;
            /** Format: int64 */
            attempt?: number;
            message?: string;
            /** @description of an attempt that ended */
            outcome?: string;
            /** @enum {string} */
            reason?: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
            /**
             * @description ended is an attempt, finished the task
             * @enum {string}
             */
            type: "created" | "queued" | "assigned" | "started" | "checkpoint" | "ended" | "retry" | "finished";
            worker?: string;
        };
        TaskEvents: {
            /** @description in order of time; of a task with many attempts the last ones */
            events: components["schemas"]["TaskEvent"][];
        };
        TaskSpec: {
            allow_hosts?: string[] | null;
            /**
             * @description numbers and ranges, one task for each
             * @example 1-1000
             * @example 0-9,20,30-39:3
             */
            array?: string;
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
            /** @description one task for each combination; an axis is a list of values or a text of ranges */
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
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            queue_timeout?: number | string;
            resources?: components["schemas"]["Request"];
            retries?: components["schemas"]["Retries"];
            /** @description a list is executed directly, a string by sh -c */
            run?: string | string[];
            /** @description a string is the text */
            script?: string | components["schemas"]["Script"];
            /**
             * @description seconds; a text such as 90s, 10m, 1h30m or 7d is read too
             * @example 90
             */
            timeout?: number | string;
            where?: components["schemas"]["Where"];
        };
        Tasks: {
            /** @description cursor of the next page; absent at the end */
            next?: string;
            tasks: components["schemas"]["Task"][];
        };
        TestNotify: {
            /** @description one of the project's notifications; absent means all */
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
             * @description bytes; a text such as 512MiB or 10GB is read too
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
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory_avg?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            memory_peak?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            net_in?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            net_out?: number;
            /** Format: int64 */
            pids_peak?: number;
            /** Format: double */
            power_avg?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            read_bytes?: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            vram_peak?: number;
            /** Format: double */
            wall_seconds: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            write_bytes?: number;
        };
        Used: {
            /**
             * Format: double
             * @description cores: the load of each machine times the cores that its worker offers
             */
            cpus: number;
            /**
             * @description bytes; a text such as 512MiB or 10GB is read too
             * @example 1073741824
             */
            gpu_memory: number;
            /**
             * Format: double
             * @description sum of the devices' utilization, each 0 to 1
             */
            gpus: number;
            /**
             * @description bytes in use on the machines, by whatever program
             * @example 1073741824
             */
            memory: number;
            /**
             * Format: double
             * @description watts, of the devices
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
            /** @description what /download/muster answers; absent if the key may not join workers */
            download?: components["schemas"]["Program"];
            /**
             * Format: date-time
             * @description of the key; absent means never
             * @example 2026-01-02T15:04:05.000Z
             */
            expires_at?: string;
            /**
             * Format: int64
             * @description the only job that the key may read; absent means all
             */
            job?: number;
            key: string;
            name: string;
            /** @description what the key may do, such as "submit jobs" */
            permissions: string[];
            project?: string;
            role: string;
            /** @description of the server */
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
            /** Format: double */
            price?: number;
            projects?: string[] | null;
            resources: components["schemas"]["Resources"];
            /** Format: int64 */
            running: number;
            state: string;
            tags?: string[] | null;
            tasks?: string[] | null;
            version?: string;
        };
        WorkerCounts: {
            /** Format: int64 */
            active: number;
            /**
             * Format: int64
             * @description of the connected ones, those that take nothing new of their own accord
             */
            constrained: number;
            /** Format: int64 */
            draining: number;
            /** Format: int64 */
            gone: number;
            /** Format: int64 */
            paused: number;
            /** Format: int64 */
            total: number;
            /** Format: int64 */
            unreachable: number;
        };
        WorkerHealth: {
            attempt: string;
            avoided?: string;
            /** @enum {string} */
            reason: "exit_code" | "signal" | "out_of_memory" | "timeout" | "queue_timeout" | "artifact_missing" | "dependency" | "fetch_failed" | "upload_failed" | "start_failed" | "disk_full" | "bad_reference" | "need_not_met" | "crash_limit" | "worker_lost" | "worker_restart" | "worker_shutdown" | "rejected" | "cancelled_by_user" | "worker_internal" | "invalid_spec" | "result_invalid" | "pid_limit" | "disk_limit" | "gpu_memory" | "gpu_fault" | "preempted" | "gang_member" | "image_missing" | "image_pull" | "engine_failed" | "bad_input" | "diverged";
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
                /** @description where in the blob the body begins: as many bytes as are here */
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
                /** @description only events of these types; default: all. A resync always comes */
                type?: ("job" | "task" | "worker")[] | null;
            };
            header?: {
                /** @description go on after this event */
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
                /** @description id, or name if only one has it; absent means the fleet */
                worker?: string;
                /** @description default: an hour before to */
                from?: string;
                /** @description default: now */
                to?: string;
                /** @description most points of the answer, about */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page */
                limit?: number;
                /** @description any of these */
                state?: ("waiting" | "queued" | "running" | "succeeded" | "failed" | "timed_out" | "cancelled")[] | null;
                project?: string;
                /** @description part of the name */
                name?: string;
                /** @description of all its stages */
                kind?: string;
                /** @description id of the key that submitted it */
                owner?: string;
                /** @description created then or later */
                since?: string;
                /** @description created then or earlier */
                until?: string;
                /** @description which come first */
                order?: "newest" | "oldest";
                /** @description KEY=VALUE; all of these */
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
            query?: never;
            header?: {
                /** @description the same key and body again answer the same job */
                "Idempotency-Key"?: string;
                /** @description the span, as in W3C Trace Context, that the job becomes a part of */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page */
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
                /** @description number of the last one; default: all */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page */
                limit?: number;
                /** @description any of these */
                state?: ("waiting" | "queued" | "assigned" | "running" | "cancelling" | "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped")[] | null;
                /** @description task numbers and ranges */
                tasks?: string;
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
            query?: never;
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
    "list-kinds": {
        parameters: {
            query?: {
                /** @description only those that owners of workers added */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page */
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
    "get-overview": {
        parameters: {
            query?: {
                /** @description false leaves the list of devices empty */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page */
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
                /** @description have browsers save the file, rather than show it */
                download?: boolean;
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
                /** @description default: the last one; when following, those after it too */
                attempt?: number;
                stream?: "stdout" | "stderr" | "all";
                /** @description begin at this place in the log, which is in the id of each event (ATTEMPT-OFFSET) */
                offset?: number;
                /** @description begin with the last lines */
                tail?: number;
                /** @description answer with text that browsers save as a file */
                download?: boolean;
                /** @description go on until the task has ended; default for server-sent events: true */
                follow?: "true" | "false";
            };
            header?: {
                /** @description go on after this event; attempt, offset and tail do not count then */
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
                /** @description any place in the log; it is moved back to where a record begins. -1 means the end, or the beginning if the direction is forward */
                offset?: number;
                direction?: "forward" | "backward";
                stream?: "stdout" | "stderr" | "all";
                /** @description the text to find */
                q?: string;
                /** @description q is a regular expression in the syntax of RE2 */
                regex?: boolean;
                /** @description upper and lower case differ */
                case?: boolean;
                /** @description find lines in which programs say that they failed, in place of q */
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
                /** @description any place in the log; it is moved back to where a record begins. -1 means the end, or the beginning if the direction is forward */
                offset?: number;
                direction?: "forward" | "backward";
                stream?: "stdout" | "stderr" | "all";
                /** @description most bytes of output; one record is shown however long it is */
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
                /** @description only this one; default: all */
                attempt?: number;
                /** @description most points of each attempt; there are fewer where an answer of so many attempts, metrics and steps would have more than about 16 MiB */
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
                /** @description default: the last one; when following, those after it too */
                attempt?: number;
                /** @description most samples of the answer. If there are more, one stands for several that follow each other: it has the time of their last, and the highest of each figure. Server-sent events are not thinned */
                points?: number;
                /** @description go on until the task has ended; default for server-sent events: true */
                follow?: "true" | "false";
            };
            header?: {
                /** @description go on after this event, or after the next of an answer */
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
                /** @description next of the page before */
                cursor?: string;
                /** @description rows of this page; absent means all */
                limit?: number;
                /** @description only these */
                id?: string[] | null;
                /** @description basic leaves out kinds, allow, lacks, projects, and the GPUs of free and load */
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
                /** @description id, or name if only one has it */
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
                /** @description id, or name if only one has it */
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
    "drain-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if only one has it */
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
                /** @description id, or name if only one has it */
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
                /** @description id, or name if only one has it */
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
    "resume-worker": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description id, or name if only one has it */
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
                /** @description refuse an executable of another operating system */
                os?: string;
                /** @description refuse an executable of another architecture */
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
