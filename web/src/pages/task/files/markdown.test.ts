import { describe, expect, it } from "vitest";
import { render, resolvePath } from "./markdown";

const known = (path: string) => (path === "plots/a b.png" ? "/api/v1/tasks/1.0/artifacts/plots/a%20b.png" : undefined);

describe("render", () => {
  it("shows HTML of the file as text", () => {
    expect(render("x <script>alert(1)</script> <img src=x onerror=alert(1)>", "README.md", known)).toBe("<p>x &lt;script&gt;alert(1)&lt;/script&gt; &lt;img src=x onerror=alert(1)&gt;</p>\n");
  });

  it("shows images of known files only", () => {
    expect(render("![plot](plots/a%20b.png)", "README.md", known)).toContain('<img src="/api/v1/tasks/1.0/artifacts/plots/a%20b.png" alt="plot">');
    const remote = render('![spy](https://example.org/x.png "t") ![d](data:image/png;base64,AAAA)', "README.md", known);
    expect(remote).not.toContain("<img");
    expect(remote).not.toContain("src=");
  });

  it("opens links elsewhere without a referrer, and no scripts", () => {
    expect(render("[a](https://example.org)", "README.md", known)).toContain('href="https://example.org" target="_blank" rel="noopener noreferrer nofollow"');
    expect(render("[a](javascript:alert(1))", "README.md", known)).not.toContain("href");
    expect(render("[a](mailto:x@example.org)", "README.md", known)).toContain('href="#"');
  });
});

describe("resolvePath", () => {
  it("stays in the files of the attempt", () => {
    expect(resolvePath("docs/README.md", "../plots/./a%20b.png?x#y")).toBe("plots/a b.png");
    expect(resolvePath("docs/README.md", "/plots/a.png")).toBe("plots/a.png");
    expect(["../../etc/passwd", "//example.org/x", "http://example.org", "#here", "%zz"].map((r) => resolvePath("README.md", r))).toEqual([undefined, undefined, undefined, undefined, undefined]);
  });
});
