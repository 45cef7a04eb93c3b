import { Button, Center, Loader, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { keepPreviousData } from "@tanstack/react-query";
import { FileQuestion } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState, type ReactNode } from "react";
import type { Artifact } from "@/api/types";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { bytes, count } from "@/ui/format";
import { TerminalLine } from "../log/ansi";
import { cssOf, paint } from "../log/paint";
import { parseCsv } from "./csv";
import css from "./files.module.css";
import { JsonTree } from "./JsonTree";
import { kindOf, looksLikeText, mimeOf, type FileKind } from "./kinds";
import { fetchHead } from "./range";
import { Sheet } from "./Sheet";

const Markdown = lazy(() => import("./Markdown"));
const Parquet = lazy(() => import("./Parquet"));

/** How much of a file is read for its preview, in bytes. */
const headOf: Record<FileKind, number> = { image: 32 << 20, audio: 64 << 20, video: 64 << 20, csv: 256 << 10, json: 4 << 20, jsonl: 512 << 10, markdown: 512 << 10, text: 256 << 10, parquet: 0, unknown: 64 << 10 };
const maxRows = 500;

export interface PreviewProps {
  readonly file: Artifact;
  readonly url: string;
  /** The other files, to which a Markdown file may refer. */
  readonly artifacts: readonly Artifact[];
  readonly urlOf: (a: Artifact) => string;
}

/** The beginning of a file, shown as what its name says it is. */
export function Preview(props: PreviewProps) {
  const kind = kindOf(props.file.name);
  if (kind === "image" || kind === "audio" || kind === "video") return <Media key={props.file.name} {...props} kind={kind} />;
  if (kind === "parquet") {
    return (
      <Suspense fallback={<Pending />}>
        <Parquet key={props.file.sha256} url={props.url} size={props.file.size} />
      </Suspense>
    );
  }
  return <Text_ key={props.file.name} {...props} kind={kind} />;
}

function Pending() {
  return (
    <Center h={200} role="status" aria-label="Loading the preview">
      <Loader size="sm" />
    </Center>
  );
}

function Text_({ file, url, artifacts, urlOf, kind }: PreviewProps & { kind: FileKind }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["artifact-head", file.sha256, headOf[kind]],
    enabled: file.size > 0,
    queryFn: ({ signal }) => fetchHead(url, headOf[kind], signal),
    staleTime: Infinity,
    gcTime: 60_000,
    placeholderData: keepPreviousData,
  });
  if (file.size === 0) return <EmptyState icon={FileQuestion} title="This file is empty" />;
  if (error && !data) return <ErrorState error={error} retry={() => void refetch()} title="The file could not be loaded" />;
  if (!data) return <Pending />;
  if (data.bytes.length === 0) return <EmptyState icon={FileQuestion} title="This file is empty" />;
  if (!looksLikeText(data.bytes.subarray(0, 4096))) {
    return (
      <EmptyState icon={FileQuestion} title="No preview of this kind of file">
        It holds binary data. Download it to open it with a program of your own.
      </EmptyState>
    );
  }
  // Of JSON only the whole is a tree: as text, less of it is shown.
  const shown = kind === "json" && !data.whole ? data.bytes.subarray(0, headOf.text) : data.bytes;
  const text = new TextDecoder().decode(shown);
  const cut = !data.whole && `The first ${bytes(shown.length)} of ${bytes(file.size)}.`;
  switch (kind) {
    case "csv":
      return <Csv text={text} whole={data.whole} size={file.size} />;
    case "json":
      return <Json text={text} note={cut || undefined} />;
    case "jsonl":
      return <JsonLines text={text} whole={data.whole} />;
    case "markdown":
      return (
        <Framed note={cut || undefined}>
          <Suspense fallback={<Pending />}>
            <Markdown text={text} name={file.name} artifacts={artifacts} urlOf={urlOf} />
          </Suspense>
        </Framed>
      );
    default:
      return (
        <Framed note={cut || undefined}>
          <Ansi text={text} />
        </Framed>
      );
  }
}

function Framed({ note, children }: { note?: string | undefined; children: ReactNode }) {
  return (
    <>
      {note && <div className={css.note}>{note}</div>}
      {/* It scrolls, so the keyboard must reach it. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <div className={css.body} tabIndex={0} role="region" aria-label="Content of the file">
        {children}
      </div>
    </>
  );
}

function Csv({ text, whole, size }: { text: string; whole: boolean; size: number }) {
  const table = useMemo(() => parseCsv(text, whole, maxRows), [text, whole]);
  return (
    <>
      <div className={css.note}>
        {count(table.rows.length)} {table.more ? `rows from the beginning of ${bytes(size)}` : "rows"}, {count(table.header.length)} columns
      </div>
      <Sheet header={table.header} rows={table.rows} />
    </>
  );
}

function Json({ text, note }: { text: string; note: string | undefined }) {
  const value = useMemo<{ ok: true; value: unknown } | { ok: false; why: string }>(() => {
    if (note) return { ok: false, why: note };
    try {
      return { ok: true, value: JSON.parse(text) as unknown };
    } catch (e) {
      return { ok: false, why: `This is not valid JSON: ${e instanceof Error ? e.message : String(e)}` };
    }
  }, [text, note]);
  return (
    <Framed note={value.ok ? undefined : value.why}>{value.ok ? <JsonTree value={value.value} open={2} /> : <Ansi text={text.slice(0, 256 << 10)} />}</Framed>
  );
}

function JsonLines({ text, whole }: { text: string; whole: boolean }) {
  const lines = useMemo(() => {
    const all = text.split("\n");
    if (!whole) all.pop();
    return all.filter((l) => l.trim() !== "").slice(0, 200);
  }, [text, whole]);
  return (
    <Framed note={`The first ${count(lines.length)} lines`}>
      {lines.map((l, i) => {
        try {
          return <JsonTree key={i} value={JSON.parse(l) as unknown} open={0} />;
        } catch {
          return <pre key={i} className={css.text}>{l}</pre>;
        }
      })}
    </Framed>
  );
}

// Text with the colours that a terminal would show.
function Ansi({ text }: { text: string }) {
  const lines = useMemo(() => {
    // eslint-disable-next-line no-control-regex -- escape sequences and carriage returns
    if (!/[\u001b\r\b]/.test(text.slice(0, 100_000))) return undefined;
    return text.split("\n", 5_000).map((l) => {
      const line = new TerminalLine();
      line.feed(l.endsWith("\r") ? l.slice(0, -1) : l);
      return line.render();
    });
  }, [text]);
  return (
    <pre className={css.text}>
      {lines
        ? lines.map((l, i) => (
            <div key={i}>
              {paint(l, []).map((p, k) => (
                <span key={k} style={cssOf(p.style)}>
                  {p.text}
                </span>
              ))}
              {l.text === "" && "\n"}
            </div>
          ))
        : text}
    </pre>
  );
}

// Media are fetched here, because browsers refuse types that the server does not name, and shown from memory.
function Media({ file, url, kind }: PreviewProps & { kind: "image" | "audio" | "video" }) {
  const most = headOf[kind];
  const [wanted, setWanted] = useState(kind !== "video");
  const [small, setSmall] = useState(false);
  const { data, error, refetch } = useQuery({
    queryKey: ["artifact-media", file.sha256],
    enabled: wanted && file.size <= most,
    queryFn: async ({ signal }) => {
      const head = await fetchHead(url, most, signal);
      return new Blob([head.bytes as Uint8Array<ArrayBuffer>], { type: mimeOf(file.name) });
    },
    staleTime: Infinity,
    gcTime: 30_000,
    placeholderData: keepPreviousData,
  });
  const [source, setSource] = useState<string>();
  useEffect(() => {
    if (!data) return;
    const made = URL.createObjectURL(data);
    setSource(made); // eslint-disable-line react-hooks/set-state-in-effect -- the address lives as long as the effect
    return () => URL.revokeObjectURL(made);
  }, [data]);
  if (file.size > most) {
    return (
      <EmptyState icon={FileQuestion} title="Too large for a preview">
        {bytes(file.size)}; at most {bytes(most)} are shown. Download it instead.
      </EmptyState>
    );
  }
  if (error && !data) return <ErrorState error={error} retry={() => void refetch()} title="The file could not be loaded" />;
  if (!wanted) {
    return (
      <Center h={200}>
        <Button variant="default" onClick={() => setWanted(true)}>
          Load the video ({bytes(file.size)})
        </Button>
      </Center>
    );
  }
  if (!source) return <Pending />;
  return (
    <Framed>
      {kind === "image" && <img className={css.image} src={source} alt={file.name} data-small={small || undefined} onLoad={(e) => setSmall(e.currentTarget.naturalWidth <= 64 && e.currentTarget.naturalHeight <= 64)} />}
      {/* What a task made has no captions. */}
      {/* eslint-disable-next-line jsx-a11y/media-has-caption */}
      {kind === "audio" && <audio controls src={source} style={{ width: "100%" }} />}
      {/* eslint-disable-next-line jsx-a11y/media-has-caption */}
      {kind === "video" && <video controls src={source} style={{ width: "100%", maxHeight: "66dvh" }} />}
      {kind === "image" && (
        <Text size="xs" c="dimmed" ta="center" mt={8}>
          {file.name.startsWith("live/") ? "Refreshed when the task writes it again" : ""}
        </Text>
      )}
    </Framed>
  );
}
