/// <reference types="node" />
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { exitText, plainReason } from "./reasons";

describe("plainReason", () => {
  it("has words for every reason of the server", () => {
    const source = readFileSync("../reason.go", "utf8");
    const reasons = [...source.matchAll(/Reason\s*=\s*"(\w+)"/g)].map((m) => m[1] ?? "");
    expect(reasons.length).toBeGreaterThan(30);
    const bare = reasons.filter((r) => plainReason(r)?.what === r.replaceAll("_", " "));
    expect(bare).toEqual([]);
  });

  it("shows what it does not know as it is", () => {
    expect(plainReason("moon_phase")?.what).toBe("moon phase");
    expect(plainReason(undefined)).toBeUndefined();
  });
});

describe("exitText", () => {
  it("names signals", () => {
    expect([exitText(1), exitText(137), exitText(138), exitText(140), exitText(127), exitText(200)]).toEqual(["1", "137 (SIGKILL)", "138 (SIGUSR1)", "140 (SIGUSR2)", "127 (command not found)", "200"]);
  });
});
