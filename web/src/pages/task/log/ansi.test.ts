import { describe, expect, it } from "vitest";
import { applySGR, columns, maxCells, plainLine, type Style, TerminalLine } from "./ansi";

const shown = (...parts: string[]) => {
  const line = new TerminalLine();
  for (const p of parts) line.feed(p);
  return line.render();
};

describe("TerminalLine", () => {
  it("keeps plain text as it is", () => {
    expect(shown("loss 0.1 <b>&amp;")).toEqual({ text: "loss 0.1 <b>&amp;", spans: undefined });
  });

  it("splits text where its style changes", () => {
    expect(shown("a \u001b[1;31merror\u001b[0m b").spans).toEqual([
      { text: "a ", style: undefined },
      { text: "error", style: { bold: true, fg: "1" } },
      { text: " b", style: undefined },
    ]);
  });

  it("joins a sequence that was cut into two records", () => {
    expect(shown("x\u001b[3", "2mgreen").spans).toEqual([
      { text: "x", style: undefined },
      { text: "green", style: { fg: "2" } },
    ]);
  });

  it("shows the last state of a progress bar", () => {
    expect(shown("\r 10%|#   |\r 50%|##  |\r100%|####|").text).toBe("100%|####|");
    expect(shown("downloading 100%\rdone").text).toBe("doneloading 100%");
    expect(shown("downloading 100%\r\u001b[Kdone").text).toBe("done");
    expect(shown("\u001b[2K\u001b[1Gfirst", "\u001b[2K\u001b[1Gsecond").text).toBe("second");
  });

  it("replays a bar of a million drawings quickly", () => {
    const began = performance.now();
    expect(shown(Array.from({ length: 200_000 }, (_, i) => `\rstep ${i}`).join("")).text).toBe("step 199999");
    expect(performance.now() - began).toBeLessThan(500);
  });

  it("removes titles, links and cursor movement, and makes other controls visible", () => {
    expect(shown("\u001b]0;title\u0007a\u001b]8;;https://example.org\u001b\\link\u001b]8;;\u001b\\\u001b[?25l\u001b[2Ab").text).toBe("alinkb");
    expect(shown("a\u0000b\u007f").text).toBe("a␀b␡");
  });

  it("does not wait for ever for the end of a sequence", () => {
    expect(shown(`\u001b]${"x".repeat(600)}`).text).toBe(`␛]${"x".repeat(600)}`);
  });

  it("expands tabs to eight columns", () => {
    expect(shown("ab\tc").text).toBe("ab      c");
  });

  it("bounds a line", () => {
    const line = new TerminalLine();
    line.feed("x".repeat(maxCells + 10));
    line.feed("\u001b[999999999Cx");
    expect(line.render().text.length).toBe(maxCells);
    expect(line.full).toBe(true);
  });
});

describe("applySGR", () => {
  it("knows the colours of 16, 256 and 16 million", () => {
    expect(applySGR(undefined, "97;41")).toEqual({ fg: "15", bg: "1" });
    expect(applySGR(undefined, "38;5;196")).toEqual({ fg: "rgb(255 0 0)" });
    expect(applySGR(undefined, "38;5;9")).toEqual({ fg: "9" });
    expect(applySGR(undefined, "48;2;1;2;300;1")).toEqual({ bg: "rgb(1 2 255)", bold: true });
    expect(applySGR(undefined, "38:2::10:20:30")).toEqual({ fg: "rgb(10 20 30)" });
  });

  it("takes styles back", () => {
    expect(applySGR({ bold: true, fg: "1" }, "22")).toEqual({ fg: "1" });
    expect(applySGR({ bold: true }, "")).toBeUndefined();
    expect(applySGR({ bold: true }, "?1")).toEqual({ bold: true });
  });
});

describe("columns", () => {
  it("counts wide characters twice and combining ones not", () => {
    expect([columns("abc"), columns("日本"), columns("é"), columns("e\u0301"), columns("🙂")]).toEqual([3, 4, 1, 1, 2]);
  });
});

describe("plainLine", () => {
  it("is what replaying the line shows", () => {
    const parts = ["", "a", "text ", "\u001b[31m", "\u001b[1;32m", "\u001b[0m", "\u001b[m", "\u001b[38;5;9m", "日本", "\u001b[31m"];
    for (let n = 0; n < 2_000; n++) {
      const raw = Array.from({ length: n % 7 }, (_, i) => parts[(n * 31 + i * 17 + ((n >> 3) * i)) % parts.length] ?? "").join("");
      const start: Style | undefined = n % 3 === 0 ? { bold: true } : undefined;
      const line = new TerminalLine(start);
      line.feed(raw);
      expect(plainLine(raw, start)).toEqual({ ...line.render(), style: line.style });
    }
  });

  it("leaves other control characters to the terminal", () => {
    expect(plainLine("a\rb", undefined)).toBeUndefined();
    expect(plainLine("a\u001b[2Kb", undefined)).toBeUndefined();
    expect(plainLine("a\tb", undefined)).toBeUndefined();
  });
});
