import { useSyncExternalStore } from "react";
import { ApiError, errorOf } from "./error";
import type { components } from "./schema";

/** Who is signed in, as GET /api/v1/whoami says. */
export type Me = components["schemas"]["Whoami"];

/** The verbs of the server's roles, by which the dashboard decides what it offers. */
export type Verb = "read jobs" | "submit jobs" | "cancel, retry or edit jobs" | "see workers" | "steer workers" | "create keys" | "manage keys" | "join workers" | "manage notifications" | "manage secrets" | "remove or keep jobs" | "manage retention" | "read metrics" | "back up the server" | "execute commands in tasks" | "read the audit log";

export interface Session {
  /** "unknown" until the first answer of the server. */
  readonly status: "unknown" | "in" | "out";
  readonly me?: Me;
  /** Requests wait for a sign-in: the dialog is open over the page. */
  readonly expired: boolean;
  /** How often another user has signed in over a page: what pages hold of the former user is not the next one's. */
  readonly generation: number;
  /** Why the server could not be asked who is signed in. */
  readonly error?: unknown;
}

/** Where the browser keeps who signed in last, for its other tabs and for the time after a reload. */
const stored = "muster-user";

/** Who a key is for. A key that replaces an expired one has its name and may do the same: its user keeps what is on the page. */
const userOf = (me: Me) => JSON.stringify([me.name, me.role, me.project, me.job]);

let state: Session = { status: "unknown", expired: false, generation: 0 };
const listeners = new Set<() => void>();
let forget: () => void = () => undefined;
let waiting: { promise: Promise<void>; resolve: () => void; reject: (e: Error) => void } | undefined;

function set(next: Session) {
  state = next;
  for (const l of listeners) l();
}

/** Rejects the requests that wait for a sign-in. */
function refuse(why: string) {
  const left = waiting;
  waiting = undefined;
  left?.reject(new ApiError("unauthenticated", 401, why));
}

function adopt(me: Me) {
  const before = state.me ? userOf(state.me) : localStorage.getItem(stored);
  const other = before !== null && before !== userOf(me);
  if (other) {
    forget();
    refuse("Another user has signed in: this was not sent");
  }
  try {
    localStorage.setItem(stored, userOf(me));
  } catch {
    // A full storage costs what other tabs and the next page would learn from it.
  }
  set({ status: "in", me, expired: false, generation: state.generation + (other && state.me ? 1 : 0) });
  waiting?.resolve();
  waiting = undefined;
}

function leave() {
  forget();
  localStorage.removeItem(stored);
  set({ status: "out", expired: false, generation: state.generation });
  refuse("Signed out");
}

async function request(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch {
    throw new ApiError("unreachable", 0, "The server cannot be reached");
  }
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
    try {
      const response = await request("/api/v1/whoami", { headers: { Accept: "application/json" } });
      if (response.ok) adopt((await response.json()) as Me);
      else if (response.status !== 401) throw await errorOf(response);
      else if (state.me) leave();
      else set({ ...state, status: "out" });
    } catch (error) {
      set({ ...state, error });
    }
  },
  /** Signs in with an API key. The browser keeps it in a cookie that scripts cannot read. */
  async signIn(token: string): Promise<Me> {
    const response = await request("/api/v1/session", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json" },
      body: JSON.stringify({ token: token.trim() }),
    });
    if (!response.ok) throw await errorOf(response);
    const me = (await response.json()) as Me;
    adopt(me);
    return me;
  },
  /** Returns the name of the provider with which users sign in, "" if there is none. */
  async provider(): Promise<string> {
    const response = await request("/api/v1/oidc", { headers: { Accept: "application/json" } });
    if (!response.ok) throw await errorOf(response);
    return ((await response.json()) as components["schemas"]["SignIn"]).provider ?? "";
  },
  async signOut(): Promise<void> {
    const response = await request("/api/v1/session", { method: "DELETE" });
    if (!response.ok && response.status !== 401) throw await errorOf(response);
    leave();
  },
  /** Sets what drops all data of a user: it runs at each sign-out, and when another user signs in. */
  onForget(drop: () => void) {
    forget = drop;
  },
  /** Follows the browser's other tabs, which have the same cookie: returns how to stop. */
  follow(): () => void {
    const changed = (e: StorageEvent) => {
      if (e.key === stored && state.me && e.newValue !== userOf(state.me)) void session.check();
    };
    window.addEventListener("storage", changed);
    return () => window.removeEventListener("storage", changed);
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
      else set({ ...state, status: "out" });
    }
    return waiting.promise;
  },
};

export function useSession(): Session {
  return useSyncExternalStore(subscribe, session.get);
}

export function can(me: Me | undefined, verb: Verb): boolean {
  return me?.permissions.includes(verb) ?? false;
}

/** Whether the signed-in key may do something: what it may not do is not offered. */
export function useCan(verb: Verb): boolean {
  return can(useSession().me, verb);
}
