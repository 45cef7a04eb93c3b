import MarkdownIt from "markdown-it";

/** The path of a reference in a file, relative to the folder of the file; undefined if it leads elsewhere. */
export function resolvePath(from: string, reference: string): string | undefined {
  if (/^[a-z][a-z0-9+.-]*:|^\/\/|^[#?]/i.test(reference)) return undefined;
  const parts = reference.startsWith("/") ? [] : from.split("/").slice(0, -1);
  let clean: string;
  try {
    clean = decodeURIComponent(reference.split(/[?#]/)[0] ?? "");
  } catch {
    return undefined;
  }
  for (const p of clean.split("/")) {
    if (p === "..") {
      if (parts.pop() === undefined) return undefined;
    } else if (p !== "." && p !== "") parts.push(p);
  }
  return parts.join("/");
}

/** Writes Markdown as HTML that is safe to show: no HTML of the file's own, images only of known files. */
export function render(text: string, name: string, urlOf: (path: string) => string | undefined): string {
  const md = new MarkdownIt({ html: false, linkify: false, typographer: false });
  md.renderer.rules.image = (tokens, i) => {
    const token = tokens[i];
    const source = String(token?.attrGet("src") ?? "");
    const alt = md.utils.escapeHtml(token?.content ?? "");
    const path = resolvePath(name, source);
    const url = path === undefined ? undefined : urlOf(path);
    if (url === undefined) return `<em>[image ${alt || md.utils.escapeHtml(source)} is not shown: it is not a file of this attempt]</em>`;
    return `<img src="${md.utils.escapeHtml(url)}" alt="${alt}">`;
  };
  md.renderer.rules.link_open = (tokens, i, options, _env, self) => {
    const token = tokens[i];
    const href = String(token?.attrGet("href") ?? "");
    if (/^https?:/i.test(href)) {
      token?.attrSet("target", "_blank");
      token?.attrSet("rel", "noopener noreferrer nofollow");
    } else {
      const path = resolvePath(name, href);
      const url = path === undefined ? undefined : urlOf(path);
      if (url === undefined) token?.attrSet("href", "#");
      else token?.attrSet("href", url);
    }
    return self.renderToken(tokens, i, options);
  };
  return md.render(text);
}
