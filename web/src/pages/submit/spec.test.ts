import { describe, expect, it } from "vitest";
import { examples, hello } from "./examples";
import { fieldsOf, setIn, taskPath, valueOf } from "./spec";

describe("the form of a kind", () => {
  const fields = fieldsOf({
    type: "object",
    required: ["model"],
    properties: {
      epochs: { type: "integer", minimum: 1, maximum: 10, default: 5, description: "how often" },
      dataset: { enum: ["mnist", "digits"], default: "mnist" },
      model: { type: "string" },
      fast: { type: "boolean" },
      batch_sizes: { type: ["array", "integer"] },
    },
  });
  const field = (name: string) => {
    const f = fields.find((x) => x.name === name);
    if (!f) throw new Error(name);
    return f;
  };
  it("begins with what must be given", () => expect(fields.map((f) => `${f.name}:${f.type}`)).toEqual(["model:text", "epochs:number", "dataset:choice", "fast:boolean", "batch_sizes:json"]));
  it("checks values by type and bounds", () => {
    expect(valueOf(field("epochs"), "3")).toEqual({ value: 3 });
    expect(valueOf(field("epochs"), "3.5")).toEqual({ error: "Write a whole number" });
    expect(valueOf(field("epochs"), "11")).toEqual({ error: "At most 10" });
    expect(valueOf(field("epochs"), "")).toEqual({});
    expect(valueOf(field("model"), " ")).toEqual({ error: "This is needed" });
    expect(valueOf(field("batch_sizes"), "[1, 8]")).toEqual({ value: [1, 8] });
    expect(valueOf(field("batch_sizes"), "[1, ").error).toContain("JSON");
    expect(valueOf(field("batch_sizes"), "auto")).toEqual({ value: "auto" });
  });
});

describe("the text of a spec", () => {
  it("keeps comments when a value is set or removed", () => {
    const text = "# mine\nname: x\ntasks:\n  - kind: script # how\n    input: {a: 1}\n";
    const path = taskPath(text);
    expect(path).toEqual(["tasks", 0]);
    const changed = setIn(setIn(text, [...path, "kind"], "echo"), [...path, "input"], { b: [1] });
    expect(changed).toContain("# mine");
    expect(changed).toContain("kind: echo");
    expect(changed).not.toContain("a: 1");
    expect(setIn(text, [...path, "input"], undefined)).not.toContain("input");
  });
  it("is one task itself where it has no list of tasks", () => expect(taskPath("kind: echo\n")).toEqual([]));
});

describe("examples", () => {
  it("are the files of examples/, each with a sentence about it", () => {
    expect(examples.map((e) => e.name)).toEqual(expect.arrayContaining(["hello", "array", "sweep", "pipeline", "progress", "ai-digits"]));
    for (const e of examples) expect(e.about).toMatch(/^[A-Z].*\.$/);
    expect(hello).toContain("name: hello");
  });
});
