import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const dist = fileURLToPath(new URL("dist", import.meta.url));

/** Empties dist but for .gitignore, which is committed so that the Go package that embeds dist always compiles. */
function clean(): Plugin {
  return {
    name: "clean",
    apply: "build",
    buildStart() {
      for (const name of readdirSync(dist)) {
        if (name !== ".gitignore") rmSync(join(dist, name), { recursive: true });
      }
    },
  };
}

/** Writes NAME.gz and NAME.br beside every text file, which the server sends to browsers that accept them. */
function compress(): Plugin {
  return {
    name: "compress",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(html|js|css|svg|json|wasm)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const text = readFileSync(path);
        writeFileSync(`${path}.gz`, gzipSync(text, { level: 9 }));
        writeFileSync(`${path}.br`, brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: text.length } }));
      }
    },
  };
}

// The server that `npm run dev` talks to.
const server = process.env["MUSTER_URL"] ?? "http://127.0.0.1:8700";

export default defineConfig({
  plugins: [react(), clean(), compress()],
  resolve: { alias: { "@": fileURLToPath(new URL("src", import.meta.url)) } },
  build: {
    outDir: dist,
    emptyOutDir: false,
    target: "es2022",
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1000,
    manifest: true,
    rolldownOptions: {
      output: {
        // The name of a shared chunk lists all that share it.
        chunkFileNames: (chunk) => `assets/${chunk.name.split("~", 1)[0]}-[hash].js`,
        assetFileNames: (asset) => (asset.names[0]?.includes("~") ? "assets/shared-[hash][extname]" : "assets/[name]-[hash][extname]"),
        // A browser asks a server without TLS for six files at a time: one for all that every page needs, and a few for what several pages share,
        // rather than one for each component and icon.
        codeSplitting: {
          groups: [
            { name: "first", tags: ["$initial"] },
            { name: "shared", minShareCount: 2, entriesAware: true, entriesAwareMergeThreshold: 4 * 1024 },
          ],
        },
      },
    },
  },
  server: {
    // The page Submit shows the examples of the repository.
    fs: { allow: [".", "../examples"].map((path) => fileURLToPath(new URL(path, import.meta.url))) },
    proxy: Object.fromEntries(
      ["/api", "/healthz", "/readyz", "/download", "/ipfs"].map((path) => [path, { target: server, xfwd: true }]),
    ),
  },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true },
});
