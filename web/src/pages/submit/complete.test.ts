import { describe as suite, expect, it } from "vitest";
import { complete, hover, type Schema } from "./complete";

const schema: Schema = {
  $ref: "#/$defs/Job",
  $defs: {
    Job: {
      type: "object",
      properties: {
        name: { type: "string", description: "what people call it" },
        priority: { type: "integer", default: 50 },
        tasks: { type: "array", items: { $ref: "#/$defs/Task" } },
        env: { type: "object", additionalProperties: { type: "string" } },
      },
    },
    Task: {
      type: "object",
      properties: {
        name: { type: "string" },
        kind: { enum: ["process", "script"], description: "what sort of task" },
        resources: { $ref: "#/$defs/Request", description: "what it needs" },
        retries: { oneOf: [{ type: "integer" }, { type: "object", properties: { max: { type: "integer" }, on: { type: "array", items: { enum: ["worker_lost", "timeout"] } } } }] },
        cache: { type: "boolean" },
      },
    },
    Request: { type: "object", properties: { cpus: { type: "number", examples: [2, 4] }, gpus: { type: "object", properties: { count: {}, memory: {} } } } },
  },
};

/** Options at the bar in a text. */
function at(marked: string): string[] | undefined {
  const offset = marked.indexOf("|");
  return complete(schema, marked.slice(0, offset) + marked.slice(offset + 1), offset)?.options.map((o) => o.label);
}

suite("completion", () => {
  it("proposes keys that are not there yet", () => {
    expect(at("|")).toEqual(["name", "priority", "tasks", "env"]);
    expect(at("name: x\npr|")).toEqual(["priority", "tasks", "env"]);
  });
  it("knows the items of lists, through references", () => {
    expect(at("tasks:\n  - name: a\n    |")).toEqual(["kind", "resources", "retries", "cache"]);
    expect(at("tasks:\n  - na|")).toEqual(["name", "kind", "resources", "retries", "cache"]);
  });
  it("proposes values", () => {
    expect(at("tasks:\n  - kind: |")).toEqual(["process", "script"]);
    expect(at("tasks:\n  - kind: scr|\n    name: a")).toEqual(["process", "script"]);
    expect(at("tasks:\n  - cache: |")).toEqual(["true", "false"]);
    expect(at("priority: |\nname: x")).toEqual(["50"]);
    expect(at("tasks:\n  - resources: {cpus: |}")).toEqual(["2", "4"]);
  });
  it("follows choices and flow style", () => {
    expect(at("tasks:\n  - retries:\n      |")).toEqual(["max", "on"]);
    expect(at("tasks:\n  - retries:\n      on: [|]")).toEqual(["worker_lost", "timeout"]);
    expect(at("tasks:\n  - resources: {gpus: {c|}}")).toEqual(["count", "memory"]);
  });
  it("proposes nothing in comments", () => expect(at("name: x # |")).toBeUndefined());
  it("has nothing for maps of any keys", () => expect(at("env:\n  |")).toBeUndefined());
});

suite("hover", () => {
  it("shows what a key means, where it stands", () => {
    const text = "name: x\ntasks:\n  - kind: script\n    resources: {cpus: 2}";
    expect(hover(schema, text, 1)).toMatchObject({ text: "what people call it", path: "name", from: 0, to: 4 });
    expect(hover(schema, text, text.indexOf("resources") + 2)).toMatchObject({ text: "what it needs", path: "tasks[0].resources" });
    expect(hover(schema, text, text.indexOf("tasks") + 1)).toBeUndefined();
  });
});
