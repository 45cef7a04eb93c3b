import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import { admin } from "@/testing/whoami";
import SettingsPage from "./index";

vi.mock("@tanstack/react-router", () => ({ getRouteApi: () => ({ useSearch: () => ({}) }), useNavigate: () => () => Promise.resolve(), createLink: (link: unknown) => link }));

const kept = { project: "default", name: "HF_TOKEN", version: 3, updated_at: "2026-01-02T15:04:05Z", updated_by: "ci", workers: ["trusted", "eu"] };
const value = "hf_0123456789abcdef";

let sent: { what: string; body: string }[];
/** The server's responses to what is about secrets; undefined means no response. */
let answer: (what: string) => Response | undefined;
let queries: QueryClient;
beforeEach(() => {
  sent = [];
  answer = () => Response.json({ secrets: [kept] });
  queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

async function open(permissions = admin.permissions) {
  vi.stubGlobal("fetch", async (input: string | Request) => {
    if (typeof input === "string") return Response.json({ ...admin, permissions });
    const what = `${input.method} ${new URL(input.url).pathname}`;
    if (!what.includes("/secrets")) return new Promise(() => undefined);
    sent.push({ what, body: await input.text() });
    return answer(what) ?? new Promise(() => undefined);
  });
  await session.check();
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queries}>
        <SettingsPage />
      </QueryClientProvider>
    </MantineProvider>,
  );
}
const changes = () => sent.filter((s) => !s.what.startsWith("GET"));
const problem = (status: number, detail: string) => Response.json({ title: "No", status, code: "conflict", detail }, { status, headers: { "Content-Type": "application/problem+json" } });
const type = (field: HTMLElement, text: string) => fireEvent.change(field, { target: { value: text } });
const button = (text: string) => screen.getByText(text).closest("button") ?? expect.fail(`no button ${text}`);
const valueField = () => screen.getByLabelText<HTMLInputElement>("Value");

describe("the secrets of a project", () => {
  it("are neither shown to keys that may not manage them, nor asked for", async () => {
    await open(["read jobs", "submit jobs", "manage keys"]);
    await screen.findByRole("heading", { name: "API keys" });
    expect(screen.queryByRole("heading", { name: /Secrets/ })).toBeNull();
    expect(screen.queryByRole("button", { name: "New secret" })).toBeNull();
    expect(sent).toEqual([]);
  });
  it("are loading, then listed with who set them and which workers get them", async () => {
    answer = () => undefined;
    await open();
    within(screen.getByRole("region", { name: "Secrets of project default" })).getByLabelText("Loading");
    cleanup();
    answer = () => Response.json({ secrets: [kept, { ...kept, name: "KEY", workers: null, problem: "the key of the server is missing" }] });
    queries.clear();
    await open();
    const row = (await screen.findByText("HF_TOKEN")).closest("tr");
    expect(row?.textContent).toMatch(/HF_TOKENtrusted, eu.*ci3$/);
    screen.getByText("the key of the server is missing");
  });
  it("say that there are none, or why they cannot be listed", async () => {
    answer = () => Response.json({ secrets: [] });
    await open();
    await screen.findByText(/^No secrets/);
    cleanup();
    queries.clear();
    answer = () => problem(403, "this key may not see secrets");
    await open();
    const region = screen.getByRole("region", { name: "Secrets of project default" });
    expect((await within(region).findByRole("alert")).textContent).toContain("this key may not see secrets");
    expect(screen.queryByRole("button", { name: "New secret" })).toBeNull();
    answer = () => Response.json({ secrets: [kept] });
    fireEvent.click(within(region).getByRole("button", { name: "Try again" }));
    await screen.findByText("HF_TOKEN");
  });
  it("are deleted after a confirmation only, which stays and says why that failed", async () => {
    await open();
    fireEvent.click(await screen.findByLabelText("Delete HF_TOKEN"));
    const dialog = within(await screen.findByRole("dialog", { name: "Delete HF_TOKEN?" }));
    fireEvent.click(dialog.getAllByRole("button", { name: "Close" })[1] ?? expect.fail("no button"));
    expect(changes()).toEqual([]);
    fireEvent.click(screen.getByLabelText("Delete HF_TOKEN"));
    answer = (what) => (what.startsWith("DELETE") ? problem(404, "project default has no secret HF_TOKEN") : Response.json({ secrets: [] }));
    fireEvent.click(await screen.findByText("Delete the secret"));
    await screen.findByText("project default has no secret HF_TOKEN");
    answer = (what) => (what.startsWith("DELETE") ? new Response(null, { status: 204 }) : Response.json({ secrets: [] }));
    fireEvent.click(button("Delete the secret"));
    await screen.findByText(/^No secrets/);
    expect(changes().map((c) => c.what)).toEqual(Array(2).fill("DELETE /api/v1/projects/default/secrets/HF_TOKEN"));
  });
});

describe("setting a secret", () => {
  const put = "PUT /api/v1/projects/default/secrets/";
  it("sends the value, and leaves it neither in the page nor in the cache, also if it failed", async () => {
    await open();
    fireEvent.click(await screen.findByText("New secret"));
    type(screen.getByLabelText("Name"), "HF_TOKEN");
    screen.getByText(/The project has this secret/);
    expect(button("Set the secret").disabled).toBe(true);
    type(screen.getByLabelText("Name"), "HF_TOKEN_2");
    fireEvent.click(button("Set the secret"));
    await screen.findByText(/at least 8 bytes/);
    type(valueField(), "  1234567  ");
    expect(screen.queryByText(/at least 8 bytes/)).toBeNull();
    fireEvent.click(button("Set the secret"));
    await screen.findByText(/at least 8 bytes/);
    expect(changes()).toEqual([]);
    expect(valueField().type).toBe("password");
    type(valueField(), value);
    answer = (what) => (what.startsWith("PUT") ? problem(409, "project default has 100 secrets") : Response.json({ secrets: [kept] }));
    fireEvent.click(button("Set the secret"));
    await screen.findByText("project default has 100 secrets");
    expect(valueField().value).toBe("");
    answer = (what) => (what.startsWith("PUT") ? Response.json({ ...kept, name: "HF_TOKEN_2" }) : Response.json({ secrets: [kept, { ...kept, name: "HF_TOKEN_2" }] }));
    type(valueField(), value);
    fireEvent.click(button("Set the secret"));
    await screen.findByText("HF_TOKEN_2");
    await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(changes()).toEqual(Array(2).fill({ what: `${put}HF_TOKEN_2`, body: JSON.stringify({ value }) }));
    expect(document.body.innerHTML).not.toContain(value);
    expect(JSON.stringify([queries.getQueryCache().getAll().map((q) => q.state), queries.getMutationCache().getAll().map((m) => m.state), Object.values(localStorage), Object.values(sessionStorage)])).not.toContain(value);
  });
  it("again keeps the workers that get it, unless they are changed", async () => {
    await open();
    fireEvent.click(await screen.findByLabelText("Set a new value of HF_TOKEN"));
    expect(screen.queryByLabelText("Name")).toBeNull();
    type(valueField(), value);
    answer = (what) => Response.json(what.startsWith("PUT") ? kept : { secrets: [kept] });
    fireEvent.click(button("Set the secret"));
    await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    expect(changes()).toEqual([{ what: `${put}HF_TOKEN`, body: JSON.stringify({ value, workers: ["trusted", "eu"] }) }]);
  });
  it("takes several lines from a file only: a password field would drop the line breaks", async () => {
    await open();
    fireEvent.click(await screen.findByLabelText("Set a new value of HF_TOKEN"));
    const pasted = fireEvent.paste(valueField(), { clipboardData: { getData: () => "-----BEGIN\nAAAA\n-----END\n" } });
    expect(pasted).toBe(false);
    screen.getByText(/several lines/);
    expect(fireEvent.paste(valueField(), { clipboardData: { getData: () => `${value}\n` } })).toBe(true);
    const input = document.querySelector<HTMLInputElement>("input[type=file]") ?? expect.fail("no input");
    for (const [bytes, why] of [
      [new Uint8Array([0xff, 0xfe, 1]), "id is not text in UTF-8"],
      [new Uint8Array((64 << 10) + 1), "id is larger than 64 KiB"],
      [new Uint8Array(), "at least 8 bytes"],
    ] as const) {
      await userEvent.upload(input, new File([bytes], "id"));
      fireEvent.click(button("Set the secret"));
      await screen.findByText(new RegExp(why));
    }
    expect(changes()).toEqual([]);
    await userEvent.upload(input, new File(["\ufeffline 1\r\nline 2\n"], "id"));
    expect(valueField().disabled).toBe(true);
    answer = (what) => Response.json(what.startsWith("PUT") ? kept : { secrets: [kept] });
    fireEvent.click(button("Set the secret"));
    await vi.waitFor(() => expect(changes()).toHaveLength(1));
    expect((JSON.parse(changes()[0]?.body ?? "") as { value: string }).value).toBe("\ufeffline 1\r\nline 2\n");
  });
  it("warns of a page without TLS", async () => {
    vi.stubGlobal("isSecureContext", true);
    await open();
    fireEvent.click(await screen.findByText("New secret"));
    expect(screen.queryByText(/without TLS/)).toBeNull();
    cleanup();
    vi.stubGlobal("isSecureContext", false);
    await open();
    fireEvent.click(await screen.findByText("New secret"));
    await screen.findByText(/without TLS/);
  });
});
