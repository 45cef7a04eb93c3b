import { describe, expect, it } from "vitest";
import type { Me } from "@/api/session";
import { pagesOf } from "./nav";
import { shortcutsOf } from "./shortcuts";

const key = (role: string, permissions: string[], more: Partial<Me> = {}): Me => ({ key: "k-1", name: role, role, version: "1", permissions, ...more });

describe("pagesOf", () => {
  it.each([
    ["ojwt", key("viewer", ["read jobs", "see workers"])],
    ["ojwst", key("submitter", ["read jobs", "submit jobs", "see workers"])],
    ["t", key("join", ["join workers"])],
    ["t", key("viewer", ["read jobs"], { job: 17 })],
  ])("offers %s, by keys and in the help", (want, me) => {
    const pages = pagesOf(me);
    expect(pages.map((n) => n.key).join("")).toBe(want);
    expect(shortcutsOf(pages).filter((s) => s.keys[0] === "g").map((s) => s.keys[1]).join("")).toBe(want);
  });
});
