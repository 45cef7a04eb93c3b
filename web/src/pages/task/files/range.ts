import { apiFetch } from "@/api/client";

export interface Head {
  readonly bytes: Uint8Array;
  /** The whole file is in bytes. */
  readonly whole: boolean;
}

/** The first bytes of a file; a server that does not answer ranges is cut off. */
export async function fetchHead(url: string, most: number, signal: AbortSignal): Promise<Head> {
  const response = await apiFetch(new URL(url, location.origin), { headers: { Range: `bytes=0-${most - 1}`, Accept: "*/*" }, signal }).catch((e: unknown) => {
    // An empty file has no range at all.
    if (e instanceof Error && "status" in e && e.status === 416) return new Response(new Uint8Array());
    throw e;
  });
  const total = Number(/\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1] ?? Number.NaN);
  const reader = response.body?.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const next = await reader?.read();
    if (!next || next.done) break;
    parts.push(next.value);
    size += next.value.length;
    if (size >= most) {
      void reader?.cancel();
      break;
    }
  }
  const bytes = new Uint8Array(Math.min(size, most));
  let at = 0;
  for (const p of parts) {
    const room = p.subarray(0, bytes.length - at);
    bytes.set(room, at);
    at += room.length;
  }
  return { bytes, whole: Number.isFinite(total) ? bytes.length >= total : size < most };
}

/** Some bytes of a file. */
export async function fetchRange(url: string, from: number, to: number, signal: AbortSignal): Promise<ArrayBuffer> {
  const response = await apiFetch(new URL(url, location.origin), { headers: { Range: `bytes=${from}-${to - 1}`, Accept: "*/*" }, signal });
  const bytes = await response.arrayBuffer();
  return response.status === 206 ? bytes : bytes.slice(from, to);
}
