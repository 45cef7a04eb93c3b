import { afterEach, describe, expect, it, vi } from "vitest";
import { jobOf, keyOf } from "./key";

const answer = (status: number, body: unknown) => () => Promise.resolve(new Response(JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } }));

afterEach(() => vi.unstubAllGlobals());

describe("jobOf", () => {
  it("asks with the key of the link alone", async () => {
    const fetched = vi.fn(answer(200, { key: "k1", role: "viewer", job: 17 }));
    vi.stubGlobal("fetch", fetched);
    expect(await jobOf("mst_x")).toBe("17");
    expect(fetched).toHaveBeenCalledWith("/api/v1/whoami", { headers: { Accept: "application/json", Authorization: "Bearer mst_x" }, credentials: "omit" });
  });

  it("refuses a key for more than one job", async () => {
    vi.stubGlobal("fetch", answer(200, { key: "k1", role: "submitter" }));
    await expect(jobOf("mst_x")).rejects.toThrow("not for one job");
  });

  it("refuses a key that the server does not know", async () => {
    vi.stubGlobal("fetch", answer(401, { code: "unauthenticated", detail: "the API key is not known here" }));
    await expect(jobOf("mst_x")).rejects.toMatchObject({ status: 401 });
  });
});

describe("keyOf", () => {
  it("takes what follows the sign, and nothing of what cannot be read", () => {
    expect(keyOf("#mst_viewer_a")).toBe("mst_viewer_a");
    expect(keyOf("#%zz")).toBe("");
  });
});
