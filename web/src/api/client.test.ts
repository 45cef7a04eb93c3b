import { afterEach, describe, expect, it, vi } from "vitest";
import { apiFetch } from "./client";
import { ApiError } from "./error";
import { session } from "./session";

const problem = (status: number, code: string, detail: string) => new Response(JSON.stringify({ status, code, detail }), { status, headers: { "Content-Type": "application/problem+json" } });
const ok = (body: unknown) => new Response(JSON.stringify(body), { headers: { "Content-Type": "application/json" } });
const me = { key: "k-1", name: "ada", role: "admin", version: "1", permissions: [] };

afterEach(() => vi.unstubAllGlobals());

describe("apiFetch", () => {
  it("throws problems as ApiError with code and sentence", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(problem(409, "conflict", "task 17.3 is already cancelled")));
    const error = await apiFetch("http://localhost/api/v1/x").catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ code: "conflict", status: 409, message: "task 17.3 is already cancelled", temporary: false });
  });

  it("says that the server cannot be reached", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    await expect(apiFetch("http://localhost/api/v1/x")).rejects.toMatchObject({ code: "unreachable", temporary: true });
  });

  it("keeps the status of an answer that is no problem document", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response("<html>", { status: 502, headers: { "Content-Type": "text/html" } })));
    await expect(apiFetch("http://localhost/api/v1/x")).rejects.toMatchObject({ status: 502, temporary: true });
  });

  it("waits for a sign-in after a 401 and sends the request again, with its body", async () => {
    const bodies: string[] = [];
    let signedIn = false;
    vi.stubGlobal("fetch", async (input: Request | string) => {
      if (typeof input === "string" && input.endsWith("/session")) {
        signedIn = true;
        return ok(me);
      }
      bodies.push(await (input as Request).text());
      return signedIn ? ok({ done: true }) : problem(401, "unauthenticated", "the key is not known");
    });
    const answer = apiFetch(new Request("http://localhost/api/v1/jobs", { method: "POST", body: "spec" }));
    await vi.waitFor(() => expect(bodies.length).toBe(1));
    await session.signIn("mst_x");
    expect(await (await answer).json()).toEqual({ done: true });
    expect(bodies).toEqual(["spec", "spec"]);
    expect(session.get()).toMatchObject({ status: "in", expired: false, me: { name: "ada" } });
  });

  it("opens the dialog when a session that was good has expired", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(problem(401, "unauthenticated", "expired")));
    const abort = new AbortController();
    const answer = apiFetch("http://localhost/api/v1/jobs", { signal: abort.signal }).catch((e: unknown) => e);
    await vi.waitFor(() => expect(session.get().expired).toBe(true));
    abort.abort();
    expect(await answer).toMatchObject({ name: "AbortError" });
  });

  it("sends nothing while the session is expired", async () => {
    const fetched = vi.fn(() => Promise.resolve(ok(me)));
    vi.stubGlobal("fetch", fetched);
    const abort = new AbortController();
    const aborted = apiFetch("http://localhost/api/v1/jobs", { signal: abort.signal }).catch((e: unknown) => e);
    const answer = apiFetch("http://localhost/api/v1/workers");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(fetched).not.toHaveBeenCalled();
    abort.abort();
    expect(await aborted).toMatchObject({ name: "AbortError" });
    await session.signIn("mst_x");
    expect(await (await answer).json()).toEqual(me);
    expect(fetched).toHaveBeenCalledTimes(2);
  });
});
