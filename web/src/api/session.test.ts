import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Me, session as Session } from "./session";

const ada: Me = { key: "k-1", name: "ada", role: "submitter", version: "1", permissions: [] };
const renewed = { ...ada, key: "k-2" };
const bob = { ...ada, key: "k-3", name: "bob" };

let session: typeof Session;
let cookie: Me | undefined;
const forget = vi.fn();

/** A page that was just loaded. */
async function load() {
  vi.resetModules();
  ({ session } = await import("./session"));
  session.onForget(forget);
}

beforeEach(async () => {
  localStorage.clear();
  forget.mockReset();
  cookie = undefined;
  vi.stubGlobal("fetch", (path: string, init: RequestInit = {}) => {
    if (init.method === "DELETE") cookie = undefined;
    else if (path.endsWith("/session")) cookie = [ada, renewed, bob].find((me) => me.key === (JSON.parse(init.body as string) as { token: string }).token);
    return Promise.resolve(cookie ? Response.json(cookie) : new Response(null, { status: init.method === "DELETE" ? 204 : 401 }));
  });
  await load();
});
afterEach(() => vi.unstubAllGlobals());

describe("session", () => {
  it("keeps everything for the same user, also with a key that replaces an expired one", async () => {
    await session.signIn(ada.key);
    const waits = session.again();
    expect(session.get().expired).toBe(true);
    await session.signIn(renewed.key);
    await waits;
    expect(forget).not.toHaveBeenCalled();
    expect(session.get()).toMatchObject({ expired: false, generation: 0, me: renewed });
  });

  it("drops the data of one user before the next one sees the page, and sends nothing of the former", async () => {
    await session.signIn(ada.key);
    const waits = session.again().catch((e: unknown) => e);
    await session.signIn(bob.key);
    expect(await waits).toMatchObject({ status: 401, message: "Another user has signed in: this was not sent" });
    expect(forget).toHaveBeenCalledTimes(1);
    expect(session.get()).toMatchObject({ status: "in", generation: 1, me: bob });
  });

  it("drops it at every sign-out, and not when that fails", async () => {
    await session.signIn(ada.key);
    const signedIn = globalThis.fetch;
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    await expect(session.signOut()).rejects.toThrow("The server cannot be reached");
    expect(forget).not.toHaveBeenCalled();
    expect(session.get().status).toBe("in");
    vi.stubGlobal("fetch", signedIn);
    await session.signOut();
    expect(forget).toHaveBeenCalledTimes(1);
    expect(session.get()).toMatchObject({ status: "out", expired: false });
  });

  it("knows after a reload whose draft the browser has", async () => {
    await session.signIn(ada.key);
    cookie = undefined;
    await load();
    await session.check();
    expect(session.get().status).toBe("out");
    await session.signIn(ada.key);
    expect(forget).not.toHaveBeenCalled();
    await load();
    await session.signIn(bob.key);
    expect(forget).toHaveBeenCalledTimes(1);
    expect(session.get().generation).toBe(0);
  });

  it("follows a sign-in and a sign-out in another tab", async () => {
    const stop = session.follow();
    await session.signIn(ada.key);
    const changes = (me: Me | undefined) => {
      cookie = me;
      window.dispatchEvent(new StorageEvent("storage", { key: "muster-user", newValue: me ? me.name : null }));
    };
    changes(bob);
    await vi.waitFor(() => expect(session.get()).toMatchObject({ me: bob, generation: 1 }));
    changes(undefined);
    await vi.waitFor(() => expect(session.get().status).toBe("out"));
    expect(forget).toHaveBeenCalledTimes(2);
    stop();
  });
});
