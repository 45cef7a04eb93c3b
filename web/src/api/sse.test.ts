import { describe, expect, it } from "vitest";
import { EventParser, type ServerEvent } from "./sse";

const stream = ": muster\n\nevent: task\nid: e-1\ndata: {\"a\":1}\n\nevent: job\r\nid: e-2\r\ndata: x\r\ndata: y\r\n\r\ndata:z\r\r";
const want: ServerEvent[] = [
  { type: "task", data: '{"a":1}' },
  { type: "job", data: "x\ny" },
  { type: "message", data: "z" },
];

describe("EventParser", () => {
  it("reads events whatever the chunks are", () => {
    for (let size = 1; size <= stream.length; size++) {
      const parser = new EventParser();
      const got: ServerEvent[] = [];
      for (let i = 0; i < stream.length; i += size) got.push(...parser.push(stream.slice(i, i + size)));
      expect(got, `chunks of ${size}`).toEqual(want);
      expect(parser.lastId).toBe("e-2");
    }
  });

  it("takes an id from a block without data, once the block is whole", () => {
    const parser = new EventParser();
    parser.push("id: e-1\ndata: x\n\n");
    expect(parser.push(": muster\nid: e-7\n")).toEqual([]);
    expect(parser.lastId).toBe("e-1");
    expect(parser.push("\n")).toEqual([]);
    expect(parser.lastId).toBe("e-7");
  });

  it("refuses a line without an end", () => {
    const parser = new EventParser();
    expect(() => {
      for (let i = 0; i < 6; i++) parser.push("x".repeat(1 << 20));
    }).toThrow(/without an end/);
  });
});
