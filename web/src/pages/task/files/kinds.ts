export type FileKind = "image" | "csv" | "json" | "jsonl" | "parquet" | "markdown" | "text" | "audio" | "video" | "unknown";

const byExtension: Readonly<Record<string, FileKind>> = Object.fromEntries(
  (
    [
      ["image", "png jpg jpeg gif webp svg bmp avif ico"],
      ["csv", "csv tsv"],
      ["json", "json ipynb geojson"],
      ["jsonl", "jsonl ndjson"],
      ["parquet", "parquet pq"],
      ["markdown", "md markdown"],
      ["text", "txt log out err yaml yml toml ini cfg conf py sh js ts tsx go rs c h cpp hpp cu java rb r sql html htm xml css dockerfile env properties diff patch tex rst srt vtt lock"],
      ["audio", "wav mp3 ogg oga flac m4a aac opus"],
      ["video", "mp4 webm mov m4v ogv"],
    ] as const
  ).flatMap(([kind, names]) => names.split(" ").map((n) => [n, kind])),
);

const mime: Readonly<Record<string, string>> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", bmp: "image/bmp", avif: "image/avif", ico: "image/x-icon",
  wav: "audio/wav", mp3: "audio/mpeg", ogg: "audio/ogg", oga: "audio/ogg", flac: "audio/flac", m4a: "audio/mp4", aac: "audio/aac", opus: "audio/ogg",
  mp4: "video/mp4", m4v: "video/mp4", webm: "video/webm", mov: "video/quicktime", ogv: "video/ogg",
};

const plain: readonly string[] = ["readme", "license", "makefile", "dockerfile", "changelog", "stdout", "stderr"];

function extensionOf(name: string): string {
  const base = name.slice(name.lastIndexOf("/") + 1);
  const dot = base.lastIndexOf(".");
  return dot < 0 ? "" : base.slice(dot + 1).toLowerCase();
}

/** How a file is previewed, by its name. */
export function kindOf(name: string): FileKind {
  const base = name.slice(name.lastIndexOf("/") + 1).toLowerCase();
  return byExtension[extensionOf(name)] ?? (plain.includes(base) ? "text" : "unknown");
}

/** The content type of images, audio and video. */
export function mimeOf(name: string): string {
  return mime[extensionOf(name)] ?? "application/octet-stream";
}

/** Whether bytes look like text: the head of a file without a known extension. */
export function looksLikeText(head: Uint8Array): boolean {
  let odd = 0;
  for (const b of head) {
    if (b === 0) return false;
    if (b < 9 || (b > 13 && b < 32 && b !== 27)) odd++;
  }
  return odd <= head.length / 100;
}
