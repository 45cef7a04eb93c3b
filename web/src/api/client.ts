import createClient, { type FetchOptions, type FetchResponse, type MaybeOptionalInit } from "openapi-fetch";
import type { PathsWithMethod } from "openapi-typescript-helpers";
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { ApiError, errorOf } from "./error";
import type { paths } from "./schema";
import { session } from "./session";

/**
 * Like fetch, for the API: throws ApiError for every answer that is an error, and after a 401 waits until the user has
 * signed in again and sends the request once more. While the session is expired nothing is sent: requests wait for the
 * same sign-in. Aborts stay aborts.
 */
export async function apiFetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const request = new Request(input, init);
  const signedIn = () => Promise.race([session.again(), aborted(request.signal)]);
  for (;;) {
    if (session.get().expired) await signedIn();
    let response: Response;
    try {
      response = await fetch(request.clone());
    } catch (e) {
      if (request.signal.aborted) throw e;
      throw new ApiError("unreachable", 0, "The server cannot be reached");
    }
    if (response.ok || response.status === 304) return response;
    if (response.status !== 401) throw await errorOf(response);
    await signedIn();
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = () => reject(signal.reason instanceof Error ? signal.reason : new DOMException("aborted", "AbortError"));
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}

/** The typed client: `await data(client.GET("/api/v1/jobs/{job}", { params: { path: { job: "17" } } }))`. */
export const client = createClient<paths>({
  baseUrl: location.origin,
  headers: { Accept: "application/json" },
  fetch: (request) => apiFetch(request),
});

/** The body of an answer of the client. Errors have been thrown before. */
export async function data<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

/** A request without generated types, for example for text. */
export async function json<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await apiFetch(new URL(path, location.origin), init);
  return (await response.json()) as T;
}

export type GetPath = PathsWithMethod<paths, "get">;
type GetData<P extends GetPath> = Required<FetchResponse<paths[P]["get"], FetchOptions<paths[P]["get"]>, "application/json">>["data"];

/** When a query is refreshed by live events; see live.ts and refresh.ts. */
export interface Live {
  /** Topics whose events make the data stale: "jobs", "job:17", "task:17.3", "workers", "worker:w-x". */
  readonly live?: readonly string[];
  /** Milliseconds between two refreshes at least; default 1000. */
  readonly every?: number;
}

declare module "@tanstack/react-query" {
  interface Register {
    defaultError: Error;
    queryMeta: { live?: readonly string[]; every?: number };
  }
}

/**
 * Query options of one GET of the API, for useQuery and useSuspenseQuery. The key is [path, init], so that
 * `queryClient.invalidateQueries({ queryKey: ["/api/v1/jobs"] })` reaches all of one path.
 */
export function get<P extends GetPath>(path: P, init: MaybeOptionalInit<paths[P], "get">, live: Live = {}) {
  return queryOptions({
    queryKey: [path, init ?? {}] as const,
    queryFn: async ({ signal }) => {
      const options = { ...init, signal } as unknown as FetchOptions<paths[P]["get"]>;
      // The overloads of the generated client cannot be resolved for a path that is a type parameter.
      const call = client.GET as unknown as (path: P, options: unknown) => Promise<{ data?: GetData<P> }>;
      return data<GetData<P>>(call(path, options));
    },
    meta: { ...(live.live && { live: live.live }), ...(live.every && { every: live.every }) },
    placeholderData: keepPreviousData,
  });
}
