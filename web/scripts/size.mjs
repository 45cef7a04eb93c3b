// Fails if what a browser loads for the first page is over the budget: the entry, the shell, the overview with its
// charts, and their style sheets, gzipped, because browsers accept brotli only over TLS.
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";

const budget = 300 * 1000;
const dist = new URL("../dist", import.meta.url).pathname;
const manifest = JSON.parse(readFileSync(join(dist, ".vite/manifest.json"), "utf8"));

const files = new Set(["index.html", "theme.js"]);
const visit = (key) => {
  const chunk = manifest[key];
  if (!chunk) throw new Error(`${key} is not in the manifest: name the first page's entries in scripts/size.mjs`);
  if (files.has(chunk.file)) return;
  files.add(chunk.file);
  for (const css of chunk.css ?? []) files.add(css);
  for (const next of chunk.imports ?? []) visit(next);
};
for (const key of ["index.html", "src/pages/overview/index.tsx", "src/ui/TimeChartCanvas.tsx"]) visit(key);

let total = 0;
for (const file of [...files].sort()) {
  const size = statSync(join(dist, `${file}.gz`)).size;
  total += size;
  console.log(`${String(size).padStart(8)}  ${file}`);
}
console.log(`${String(total).padStart(8)}  first load, gzipped; budget ${budget}`);
if (total > budget) {
  console.error("over the budget: load what the first page does not need lazily");
  process.exit(1);
}
