import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { session } from "@/api/session";
import { SignInGate } from "./SignIn";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  history.replaceState(null, "", "/");
});

/** Shows the page to somebody who is not signed in, at a path of the dashboard. */
async function show(path: string, signIn: object) {
  vi.stubGlobal("fetch", (url: string) => Promise.resolve(url.endsWith("/oidc") ? Response.json(signIn) : Response.json({ title: "Unauthorized", status: 401, code: "unauthenticated" }, { status: 401 })));
  history.replaceState(null, "", path);
  await session.check();
  render(
    <MantineProvider env="test">
      <SignInGate>
        <p>inside</p>
      </SignInGate>
    </MantineProvider>,
  );
  await screen.findByLabelText(/API key/);
}

describe("SignInGate", () => {
  it("offers the provider, which sends the user back to the page", async () => {
    await show("/jobs/7?tab=logs", { provider: "the lab", device: true });
    const link = await screen.findByRole("link", { name: "Sign in with the lab" });
    expect(link.getAttribute("href")).toBe("/api/v1/oidc/login?next=%2Fjobs%2F7%3Ftab%3Dlogs");
    expect(screen.queryByText("inside")).toBeNull();
  });
  it("offers only keys without a provider", async () => {
    await show("/", { device: false });
    expect(screen.queryByRole("link", { name: /Sign in with/ })).toBeNull();
  });
  it("says why a sign-in failed, in its own words", async () => {
    await show("/?sign-in=no-role", { provider: "the lab", device: true });
    expect(screen.getByRole("alert").textContent).toContain("no access to this server");
    cleanup();
    await show("/?sign-in=%3Cb%3Eevil", { provider: "the lab", device: true });
    expect(screen.getByRole("alert").textContent).toContain("does not work at the moment");
  });
});
