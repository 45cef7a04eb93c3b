import { describe, expect, it } from "vitest";
import { readSecrets, writeSecrets, type Use } from "./secrets";

const flat = `name: train # by hand
run: python train.py
secrets:
  # for the hub
  - HF_TOKEN
  - { name: GHCR, registry: ghcr.io }
  - { name: KEY, file: .ssh/a } # deploys
  - { name: KEY, file: .ssh/b }
  - { name: WANDB, env: WANDB_API_KEY }
  - name: PLAIN
`;

describe("readSecrets", () => {
  it("reads variables and files, and counts what a form cannot show", () => {
    const { project, tasks } = readSecrets(flat);
    expect(project).toBeUndefined();
    expect(tasks).toEqual([
      {
        path: [],
        name: "train",
        uses: new Map<string, Use>([
          ["HF_TOKEN", { variable: true }],
          ["KEY", { variable: false, file: ".ssh/a" }],
          ["PLAIN", { variable: true }],
        ]),
        others: 3,
      },
    ]);
  });
  it("reads the tasks of a job, and both forms of one secret", () => {
    const { project, tasks } = readSecrets("project: 7\ntasks:\n- name: a\n- secrets: [K, {name: K, file: k}]\n- name: c\n  secrets:\n");
    expect(project).toBe("7");
    expect(tasks.map((t) => [t.path, t.name, [...t.uses]])).toEqual([
      [["tasks", 0], "a", []],
      [["tasks", 1], "task 2", [["K", { variable: true, file: "k" }]]],
      [["tasks", 2], "c", []],
    ]);
  });
  it("refuses what it cannot change, and takes an empty text", () => {
    expect(() => readSecrets("name: [a\nrun: b\n")).toThrow("correct it first");
    expect(() => readSecrets("secrets: HF_TOKEN\n")).toThrow("not a list");
    expect(readSecrets("").tasks).toHaveLength(1);
    expect(readSecrets("just words").tasks).toHaveLength(1);
  });
});

describe("writeSecrets", () => {
  const write = (text: string, uses: Record<string, Use>, path: (string | number)[] = []) => writeSecrets(text, path, new Map(Object.entries(uses)));
  it("changes what changed, and keeps comments, order and other entries", () => {
    expect(write(flat, { HF_TOKEN: { variable: true }, KEY: { variable: true, file: ".ssh/c" }, PLAIN: { variable: false }, NEW: { variable: true } })).toBe(`name: train # by hand
run: python train.py
secrets:
  # for the hub
  - HF_TOKEN
  - { name: GHCR, registry: ghcr.io }
  - { name: KEY, file: .ssh/c } # deploys
  - { name: KEY, file: .ssh/b }
  - { name: WANDB, env: WANDB_API_KEY }
  - KEY
  - NEW
`);
  });
  it("writes the first one, and removes the list with the last one", () => {
    const one = write("name: a\nsecrets:\n", { K: { variable: false, file: "k" } });
    expect(one).toBe("name: a\nsecrets:\n  - { name: K, file: k }\n");
    expect(write(one, { K: { variable: false } })).toBe("name: a\n");
    expect(write("", { K: { variable: true } })).toBe("secrets:\n  - K\n");
    expect(write("tasks:\n  - name: a\n  - name: b\n", { K: { variable: true } }, ["tasks", 1])).toBe("tasks:\n  - name: a\n  - name: b\n    secrets:\n      - K\n");
  });
});
