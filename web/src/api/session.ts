import { useSyncExternalStore } from "react";
import { ApiError, errorOf } from "./error";
import type { components } from "./schema";

/** Who is signed in, as GET /api/v1/whoami says. */
export type Me = components["schemas"]["Whoami"] & {
  permissions?: string[] | null;
  job?: number | string;
  expires_at?: string;
};

/** The verbs of the server's roles. */
export type Verb = "read jobs" | "submit jobs" | "cancel or retry jobs" | "see workers" | "steer workers" | "manage keys" | "join workers";

export interface Session {
  /** "unknown" until the first answer of the server. */
  readonly status: "unknown" | "in" | "out";
  readonly me?: Me;
  /** Requests wait for a sign-in: the dialog is open over the page. */
  readonly expired: boolean;
  /** Why the server could not be asked who is signed in. */
  readonly error?: ApiError;
}

let state: Session = { status: "unknown", expired: false };
const listeners = new Set<() => void>();
let waiting: { promise: Promise<void>; resolve: () => void; reject: (e: Error) => void } | undefined;

function set(next: Session) {
  state = next;
  for (const l of listeners) l();
}

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const session = {
  get: () => state,
  subscribe,
  /** Asks the server who is signed in. */
  async check(): Promise<void> {
    let response: Response;
    try {
      response = await fetch("/api/v1/whoami", { headers: { Accept: "application/json" } });
      if (response.ok) {
        set({ status: "in", me: (await response.json()) as Me, expired: false });
        return;
      }
    } catch {
      set({ ...state, error: new ApiError("unreachable", 0, "The server cannot be reached") });
      return;
    }
    if (response.status === 401) set({ status: "out", expired: false });
    else set({ ...state, error: await errorOf(response) });
  },
  /** Signs in with an API key. The browser keeps it in a cookie that scripts cannot read. */
  async signIn(token: string): Promise<Me> {
    const response = await fetch("/api/v1/session", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ token: token.trim() }),
    });
    if (!response.ok) throw await errorOf(response);
    const me = (await response.json()) as Me;
    set({ status: "in", me, expired: false });
    waiting?.resolve();
    waiting = undefined;
    return me;
  },
  async signOut(): Promise<void> {
    const response = await fetch("/api/v1/session", { method: "DELETE" });
    if (!response.ok && response.status !== 401) throw await errorOf(response);
    set({ status: "out", expired: false });
    const left = waiting;
    waiting = undefined;
    left?.reject(new ApiError("unauthenticated", 401, "Signed out"));
  },
  /** Resolves when the user has signed in again; requests that were refused with 401 wait for it and are sent again. */
  again(): Promise<void> {
    if (!waiting) {
      let resolve: () => void = () => undefined;
      let reject: (e: Error) => void = () => undefined;
      const promise = new Promise<void>((res, rej) => {
        resolve = res;
        reject = rej;
      });
      promise.catch(() => undefined);
      waiting = { promise, resolve, reject };
      // A page that was never signed in shows the sign-in page; one that was keeps its state under the dialog.
      if (state.status === "in") set({ ...state, expired: true });
      else set({ status: "out", expired: false });
    }
    return waiting.promise;
  },
};

export function useSession(): Session {
  return useSyncExternalStore(subscribe, session.get);
}

const rights: Record<string, readonly Verb[]> = {
  admin: ["read jobs", "submit jobs", "cancel or retry jobs", "see workers", "steer workers", "manage keys", "join workers"],
  submitter: ["read jobs", "submit jobs", "cancel or retry jobs", "see workers"],
  viewer: ["read jobs", "see workers"],
};

export function can(me: Me | undefined, verb: Verb): boolean {
  if (!me) return false;
  return (me.permissions ?? rights[me.role] ?? []).includes(verb);
}

/** Whether the signed-in key may do something: what it may not do is not offered. */
export function useCan(verb: Verb): boolean {
  return can(useSession().me, verb);
}
