import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import { admin } from "@/testing/whoami";
import { draft } from "./draft";
import { examples, hello } from "./examples";
import SubmitPage from "./index";
import type { SubmitSearch } from "./search";

let search: SubmitSearch = {};
vi.mock("@tanstack/react-router", () => ({ getRouteApi: () => ({ useSearch: () => search }), useNavigate: () => () => Promise.resolve(), createLink: (link: unknown) => link }));
// happy-dom has no layout for a real editor.
vi.mock("./Editor", () => ({
  default: ({ value, onChange }: { value: string; onChange: (v: string) => void }) => <textarea aria-label="spec" value={value} onChange={(e) => onChange(e.currentTarget.value)} />,
}));

/** The server's responses, by method and path; undefined means no response. */
let answers: (what: string, body: string) => unknown;
beforeEach(async () => {
  localStorage.clear();
  search = {};
  answers = () => undefined;
  vi.stubGlobal("fetch", async (input: string | Request) => {
    if (typeof input === "string") return Response.json(admin);
    const answer = answers(`${input.method} ${new URL(input.url).pathname}`, await input.text());
    return answer === undefined ? new Promise(() => undefined) : Response.json(answer);
  });
  await session.check();
});
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

async function open(of: SubmitSearch = {}) {
  search = of;
  const { unmount } = render(
    <MantineProvider env="test">
      <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
        <SubmitPage />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await screen.findByLabelText("spec");
  return { leave: unmount };
}
const spec = () => screen.getByLabelText<HTMLTextAreaElement>("spec");
const write = (text: string) => fireEvent.change(spec(), { target: { value: text } });

describe("drafts", () => {
  it("are kept for each beginning, with what was written last, until the user discards them", async () => {
    const page = await open();
    write("name: mine\n");
    page.leave();
    const other = await open({ example: "array" });
    expect(spec().value).toBe(examples.find((e) => e.name === "array")?.text);
    write("name: another\n");
    other.leave();
    const again = await open();
    expect(spec().value).toBe("name: mine\n");
    fireEvent.click(screen.getByRole("button", { name: "Discard it" }));
    expect(spec().value).toBe(hello);
    again.leave();
    await open();
    expect(spec().value).toBe(hello);
    expect(draft.load("example array")).toBe("name: another\n");
  });
  it("end when their own job is submitted, and only then", async () => {
    draft.save("new", "name: other work\n");
    answers = (what) => (what === "GET /api/v1/jobs/7" ? { id: 7, spec: { name: "tune" } } : what === "POST /api/v1/jobs" ? { id: 8 } : undefined);
    const page = await open({ from: "7" });
    write("name: changed\n");
    fireEvent.click(screen.getByRole("button", { name: "Submit" }));
    await vi.waitFor(() => expect(screen.getByRole("button", { name: "Submit" }).dataset["loading"]).toBeUndefined());
    page.leave();
    expect(draft.load("from 7")).toBeUndefined();
    expect(draft.load("new")).toBe("name: other work\n");
  });
  it("are not written after a sign-out, which drops them all", async () => {
    const page = await open();
    write("name: secret\n");
    draft.drop();
    await session.signOut();
    page.leave();
    expect(draft.load("new")).toBeUndefined();
  });
  it("make room for the newest in a full storage", () => {
    for (let i = 0; i < 30; i++) draft.save(String(i), "x");
    expect([draft.load("9"), draft.load("10"), draft.load("29")]).toEqual([undefined, "x", "x"]);
    const set = localStorage.setItem.bind(localStorage);
    vi.spyOn(Storage.prototype, "setItem").mockImplementation((key, value) => {
      if (value.length > 60) throw new DOMException("full", "QuotaExceededError");
      set(key, value);
    });
    draft.save("new", "a spec that needs room for itself");
    expect([draft.load("new"), draft.load("10")]).toEqual(["a spec that needs room for itself", undefined]);
  });
});

const broken = "name: [mine\nkind: echo\n";

describe("a folder", () => {
  const choose = async (name: string) => {
    const file = new File(["print(1)"], name);
    Object.defineProperty(file, "webkitRelativePath", { value: `proj/${name}` });
    const input = document.querySelector<HTMLInputElement>("input[type=file]") ?? expect.fail("no input");
    await userEvent.upload(input, file);
    return input;
  };
  it("is uploaded once, and written when the spec has no errors any more", async () => {
    let asked = 0;
    answers = (what) => (what === "POST /api/v1/blobs/missing" ? { missing: (asked++, []) } : undefined);
    await open();
    write(broken);
    const input = await choose("a.py");
    expect(input.value).toBe(""); // The same folder can be chosen again.
    const alert = await screen.findByRole("alert");
    expect(alert.textContent).toContain("The folder is uploaded, but could not be written to the spec");
    expect(alert.textContent).toMatch(/error in line [12]: correct it first/);
    write("name: mine # kept\n");
    fireEvent.click(within(alert).getByRole("button", { name: "Try again" }));
    expect(spec().value).toMatch(/^name: mine # kept\nfiles: sha256:[0-9a-f]{64}\n$/);
    expect(screen.queryByRole("alert")).toBeNull();
    expect(asked).toBe(1);
  });
});

describe("the form of a kind", () => {
  it("says why it cannot write, and takes a switch that is off for false", async () => {
    answers = (what) => (what === "GET /api/v1/kinds" ? { kinds: [{ name: "echo", offered: 1, input: { required: ["loud"], properties: { loud: { type: "boolean" } } } }] } : undefined);
    await open();
    write(broken);
    fireEvent.click(screen.getByRole("button", { name: "Kinds" }));
    const dialog = await screen.findByRole("dialog");
    await userEvent.click(await within(dialog).findByRole("combobox", { name: "Kind" }));
    await userEvent.click(await screen.findByRole("option", { name: "echo" }));
    fireEvent.click(within(dialog).getByRole("button", { name: "Write it to the spec" }));
    expect((await within(dialog).findByRole("alert")).textContent).toContain("correct it first");
    write("name: mine\n");
    fireEvent.click(within(dialog).getByRole("button", { name: "Write it to the spec" }));
    expect(spec().value).toBe("name: mine\nkind: echo\ninput:\n  loud: false\n");
  });
});

describe("the form of secrets", () => {
  const secret = { project: "lab", name: "HF_TOKEN", version: 1, updated_at: "2026-01-02T15:04:05Z", updated_by: "admin" };
  const show = async (text: string) => {
    await open();
    write(text);
    fireEvent.click(screen.getByRole("button", { name: "Secrets" }));
    return within(await screen.findByRole("dialog"));
  };
  it("writes secrets of the spec's project as variables and files, for each task", async () => {
    const asked: string[] = [];
    answers = (what) => (what.endsWith("/secrets") ? (asked.push(what), { secrets: [{ ...secret, workers: ["trusted"] }, { ...secret, name: "KEY", problem: "the key is missing" }] }) : undefined);
    const dialog = await show("name: two\nproject: lab\ntasks:\n  - name: a # kept\n    secrets: [GONE]\n  - name: b\n");
    await dialog.findByText("only on workers with trusted");
    dialog.getByText("the key is missing");
    dialog.getByText("Project lab has no such secret");
    fireEvent.click(dialog.getByLabelText("Variable GONE"));
    fireEvent.click(dialog.getByLabelText("Variable HF_TOKEN"));
    fireEvent.change(dialog.getByLabelText("Task"), { target: { value: "1" } });
    fireEvent.click(dialog.getByLabelText("File with KEY"));
    fireEvent.change(dialog.getByLabelText("Task"), { target: { value: "0" } });
    // A file without a path is not written, and is shown.
    fireEvent.click(dialog.getByText("Write it to the spec"));
    await dialog.findByText("A path in the task's folder is needed");
    fireEvent.change(dialog.getByLabelText("Path of the file with KEY"), { target: { value: ".ssh/key" } });
    fireEvent.click(dialog.getByText("Write it to the spec"));
    expect(spec().value).toBe("name: two\nproject: lab\ntasks:\n  - name: a # kept\n    secrets: [ HF_TOKEN ]\n  - name: b\n    secrets:\n      - { name: KEY, file: .ssh/key }\n");
    expect(asked).toEqual(["GET /api/v1/projects/lab/secrets"]);
  });
  it("says that a project has none, and why a spec cannot be changed", async () => {
    answers = (what) => (what === "GET /api/v1/projects/default/secrets" ? { secrets: [] } : undefined);
    const dialog = await show("name: mine\n");
    await dialog.findByText(/Project default has no secrets/);
    dialog.getByText("Set them under Settings");
    expect(dialog.getByRole<HTMLButtonElement>("button", { name: "Write it to the spec" }).disabled).toBe(true);
    cleanup();
    const other = await show(broken);
    expect((await other.findByRole("alert")).textContent).toContain("correct it first");
  });
});

it("the plan of the text as it was is busy until the next check answers", async () => {
  answers = (what, body) => (what === "POST /api/v1/plan" && body === hello ? { stages: [{ stage: "hello", state: "queued", summary: "it can start now", ahead: 0, workers: [] }] } : undefined);
  await open();
  const plan = (await screen.findByTestId("plan")).parentElement;
  expect(plan?.getAttribute("aria-busy")).toBe("false");
  write("name: mine\n");
  expect(plan?.getAttribute("aria-busy")).toBe("true");
});
