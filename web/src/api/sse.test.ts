import { describe, expect, it } from "vitest";
import { EventParser, type ServerEvent } from "./sse";

const stream = ": muster\n\nevent: task\nid: e-1\ndata: {\"a\":1}\n\nevent: job\r\nid: e-2\r\ndata: x\r\ndata: y\r\n\r\ndata:z\r\r";
const want: ServerEvent[] = [
  { type: "task", id: "e-1", data: '{"a":1}' },
  { type: "job", id: "e-2", data: "x\ny" },
  { type: "message", id: "e-2", data: "z" },
];

describe("EventParser", () => {
  it("reads events whatever the chunks are", () => {
    for (let size = 1; size <= stream.length; size++) {
      const parser = new EventParser();
      const got: ServerEvent[] = [];
      for (let i = 0; i < stream.length; i += size) got.push(...parser.push(stream.slice(i, i + size)));
      expect(got, `chunks of ${size}`).toEqual(want);
    }
  });

  it("refuses a line without an end", () => {
    const parser = new EventParser();
    expect(() => {
      for (let i = 0; i < 6; i++) parser.push("x".repeat(1 << 20));
    }).toThrow(/without an end/);
  });
});
