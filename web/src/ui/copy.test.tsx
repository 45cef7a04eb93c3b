import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { copyText } from "./copy";
import { CopyButton } from "./CopyLine";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

describe("copyText", () => {
  it("copies by a selection where plain HTTP has no clipboard, and leaves nothing behind", async () => {
    vi.stubGlobal("isSecureContext", false);
    let copied = "";
    Object.assign(document, { execCommand: () => Boolean((copied = document.querySelector("textarea")?.value ?? "")) });
    expect(await copyText("muster up")).toBe(true);
    expect(copied).toBe("muster up");
    expect(document.querySelector("textarea")).toBeNull();
  });
});

describe("CopyButton", () => {
  it("says so if the browser refuses", async () => {
    vi.stubGlobal("isSecureContext", false);
    Object.assign(document, { execCommand: () => false });
    render(
      <MantineProvider env="test">
        <CopyButton text="x" label="Copy the key" />
      </MantineProvider>,
    );
    await userEvent.click(screen.getByRole("button", { name: "Copy the key" }));
    expect(await screen.findByRole("button", { name: "The browser does not allow copying here" })).toBeTruthy();
  });
});
