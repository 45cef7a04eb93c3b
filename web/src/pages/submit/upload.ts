import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex } from "@noble/hashes/utils.js";
import { client, data } from "@/api/client";
import { ApiError, errorOf } from "@/api/error";
import { session } from "@/api/session";
import { parseIgnore } from "./ignore";

/** A file of a folder: its path in it, slash-separated. */
export interface Entry {
  readonly path: string;
  readonly file: File;
}

export interface UploadProgress {
  readonly phase: "reading" | "sending" | "done";
  readonly files: number;
  /** Of all files; of those that the server misses, while sending. */
  readonly bytes: number;
  readonly done: number;
}

export const maxFiles = 200_000;
const atOnce = 4;
const missingAtOnce = 10_000;
const tries = 5;

/** The files of what was dropped: of a single folder its content, else the files and folders themselves. */
export async function dropped(items: readonly FileSystemEntry[]): Promise<{ name: string; entries: Entry[] }> {
  const only = items.length === 1 ? items[0] : undefined;
  const entries: Entry[] = [];
  if (only?.isDirectory) {
    await walk(only as FileSystemDirectoryEntry, "", entries);
    return { name: only.name, entries };
  }
  for (const item of items) await visit(item, "", entries);
  return { name: "files", entries };
}

async function walk(folder: FileSystemDirectoryEntry, prefix: string, to: Entry[]): Promise<void> {
  const reader = folder.createReader();
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return;
    for (const entry of batch) await visit(entry, prefix, to);
  }
}

async function visit(entry: FileSystemEntry, prefix: string, to: Entry[]): Promise<void> {
  if (entry.isDirectory) {
    // These never travel, and may be large.
    if (entry.name !== ".git" && entry.name !== ".muster") await walk(entry as FileSystemDirectoryEntry, `${prefix}${entry.name}/`, to);
    return;
  }
  const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
  to.push({ path: prefix + entry.name, file });
  if (to.length > maxFiles * 2) throw new ApiError("too_large", 0, `The folder has too many files: a job takes at most ${maxFiles}`);
}

/** The files of an <input webkitdirectory>, without the folder's own name. */
export function chosen(files: readonly File[]): { name: string; entries: Entry[] } {
  const name = files[0]?.webkitRelativePath.split("/")[0] ?? "files";
  return { name, entries: files.map((file) => ({ path: file.webkitRelativePath.split("/").slice(1).join("/") || file.name, file })) };
}

/** What travels: not what .musterignore names, nor .git and .muster, sorted by path as bytes. */
export async function travelling(entries: readonly Entry[]): Promise<Entry[]> {
  const rules = entries.find((e) => e.path === ".musterignore");
  const ignored = parseIgnore(rules ? await rules.file.text() : "");
  const encoder = new TextEncoder();
  const kept = entries.filter(({ path }) => {
    const parts = path.split("/");
    return !parts.some((_, i) => ignored(parts.slice(0, i + 1).join("/"), i < parts.length - 1));
  });
  if (kept.length > maxFiles) throw new ApiError("too_large", 0, `The folder has ${kept.length} files, a job takes at most ${maxFiles}: name what is not needed in .musterignore`);
  return kept
    .map((entry) => ({ entry, key: encoder.encode(entry.path) }))
    .sort((a, b) => compareBytes(a.key, b.key))
    .map((k) => k.entry);
}

export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const n = Math.min(a.length, b.length);
  for (let i = 0; i < n; i++) {
    const d = (a[i] ?? 0) - (b[i] ?? 0);
    if (d !== 0) return d;
  }
  return a.length - b.length;
}

/** The SHA-256 of a file, read in pieces, and whether it begins as a script does. */
async function digest(file: Blob, onBytes: (n: number) => void, signal: AbortSignal): Promise<{ hash: string; script: boolean }> {
  const sum = sha256.create();
  const reader = file.stream().getReader();
  let script = false;
  let first = true;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { hash: bytesToHex(sum.digest()), script };
    signal.throwIfAborted();
    if (first) script = value[0] === 0x23 && value[1] === 0x21; // #!
    first = false;
    sum.update(value);
    onBytes(value.length);
  }
}

/**
 * Brings files to the server as the field `files` of a task wants them, and returns what to write there: "sha256:…". Contents that
 * the server has are not sent. A browser does not tell which files are executable: those that begin with #! are made so.
 */
export async function upload(entries: readonly Entry[], onProgress: (p: UploadProgress) => void, signal: AbortSignal): Promise<string> {
  const list = await travelling(entries);
  const all = list.reduce((sum, e) => sum + e.file.size, 0);
  let read = 0;
  const files: { path: string; size: number; sha256: string; exec?: boolean }[] = [];
  const contents = new Map<string, File>();
  for (const { path, file } of list) {
    const { hash, script } = await digest(
      file,
      (n) => {
        read += n;
        onProgress({ phase: "reading", files: list.length, bytes: all, done: read });
      },
      signal,
    );
    files.push({ path, size: file.size, sha256: hash, ...(script && { exec: true }) });
    contents.set(hash, file);
  }
  const missing = await missingOf([...contents.keys()], signal);
  const todo = missing.reduce((sum, h) => sum + (contents.get(h)?.size ?? 0), 0);
  let sent = 0;
  onProgress({ phase: "sending", files: list.length, bytes: todo, done: 0 });
  await eachOf(missing, atOnce, async (hash) => {
    const file = contents.get(hash);
    if (!file) return;
    await put(hash, file, signal);
    sent += file.size;
    onProgress({ phase: "sending", files: list.length, bytes: todo, done: sent });
  });
  const tree = new TextEncoder().encode(JSON.stringify({ files }));
  const hash = bytesToHex(sha256(tree));
  await put(hash, new Blob([tree]), signal);
  onProgress({ phase: "done", files: list.length, bytes: todo, done: todo });
  return `sha256:${hash}`;
}

async function missingOf(hashes: readonly string[], signal: AbortSignal): Promise<string[]> {
  const missing: string[] = [];
  for (let i = 0; i < hashes.length; i += missingAtOnce) {
    const answer = await data(client.POST("/api/v1/blobs/missing", { body: { sha256: hashes.slice(i, i + missingAtOnce) }, signal }));
    missing.push(...answer.missing);
  }
  return missing;
}

/** Uploads a content, and continues where an earlier try was broken off: the server says where in its refusal. */
async function put(hash: string, body: Blob, signal: AbortSignal): Promise<void> {
  let offset = 0;
  for (let attempt = 1; ; ) {
    let error: ApiError;
    try {
      const response = await fetch(`/api/v1/blobs/${hash}`, {
        method: "PUT",
        body: body.slice(offset),
        headers: { "Content-Type": "application/octet-stream", "Upload-Offset": String(offset), Accept: "application/json" },
        signal,
      });
      if (response.ok) return;
      if (response.status === 401) {
        await session.again();
        continue;
      }
      const there = Number(response.headers.get("Upload-Offset") ?? "0");
      const moved = Number.isSafeInteger(there) && there > offset && there <= body.size;
      offset = moved ? there : 0;
      error = await errorOf(response);
      if (moved) continue;
    } catch (e) {
      if (signal.aborted) throw e;
      error = new ApiError("unreachable", 0, "The server cannot be reached");
    }
    if (!(error.temporary || error.status === 409) || attempt === tries) throw error;
    attempt++;
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
}

/** Runs work for each of a list, some at once, until one fails. */
async function eachOf<T>(list: readonly T[], limit: number, work: (item: T) => Promise<void>): Promise<void> {
  const rest = list.values();
  const lane = async () => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(limit, list.length) }, lane));
}
