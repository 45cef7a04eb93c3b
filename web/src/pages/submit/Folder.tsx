import { Alert, Button, FileButton, Group, Progress, Stack, Text } from "@mantine/core";
import { FolderUp } from "lucide-react";
import { useEffect, useRef, useState, type DragEvent, type ReactNode } from "react";
import { ErrorState } from "@/ui/feedback";
import { bytes, percent, plural } from "@/ui/format";
import { setIn, taskPath } from "./spec";
import css from "./submit.module.css";
import { chosen, dropped, upload, type Entry, type UploadProgress } from "./upload";

/** Takes a folder that is dropped on the page or chosen, uploads it, and writes it to the spec's `files`. */
export function Folder({ text, onText, actions, children }: { text: string; onText: (t: string) => void; actions: ReactNode; children: ReactNode }) {
  const [over, setOver] = useState(false);
  const [progress, setProgress] = useState<UploadProgress & { name: string }>();
  const [failed, setFailed] = useState<{ title: string; error: unknown; again: () => void }>();
  const reset = useRef<() => void>(null);
  const stop = useRef<AbortController>(undefined);
  const latest = useRef(text);
  useEffect(() => {
    latest.current = text;
  });
  useEffect(() => () => stop.current?.abort(), []);

  /** Writes an uploaded folder to the spec. It may have errors just then, and is written to when they are corrected. */
  const write = (hash: string) => {
    setFailed(undefined);
    try {
      onText(setIn(latest.current, [...taskPath(latest.current), "files"], hash));
    } catch (error) {
      setProgress(undefined);
      setFailed({ title: "The folder is uploaded, but could not be written to the spec", error, again: () => write(hash) });
    }
  };
  const bring = async (collect: () => Promise<{ name: string; entries: Entry[] }>) => {
    setFailed(undefined);
    stop.current?.abort();
    const control = new AbortController();
    stop.current = control;
    try {
      const { name, entries } = await collect();
      if (entries.length === 0) throw new Error("The folder is empty");
      setProgress({ name, phase: "reading", files: entries.length, bytes: 0, done: 0 });
      write(await upload(entries, (p) => setProgress({ name, ...p }), control.signal));
    } catch (error) {
      if (stop.current === control) setProgress(undefined);
      if (!control.signal.aborted) setFailed({ title: "The folder was not uploaded", error, again: () => void bring(collect) });
    }
  };
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    const items = [...e.dataTransfer.items].flatMap((i) => i.webkitGetAsEntry() ?? []);
    if (items.length > 0) void bring(() => dropped(items));
  };
  return (
    // What can be dropped can be chosen with the button, too.
    <div
      className={css.drop}
      data-over={over || undefined}
      onDragOver={(e) => {
        if (!e.dataTransfer.types.includes("Files")) return;
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={(e) => {
        if (!e.currentTarget.contains(e.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={drop}
    >
      <Group justify="space-between" mb="sm" gap="xs">
        <FileButton
          multiple
          resetRef={reset}
          inputProps={{ webkitdirectory: "" } as object}
          onChange={(files) => {
            // A browser reports no change when the same folder is chosen again.
            reset.current?.();
            if (files.length > 0) void bring(() => Promise.resolve(chosen(files)));
          }}
        >
          {(props) => (
            <Button {...props} variant="default" leftSection={<FolderUp size={16} aria-hidden />}>
              Add a folder
            </Button>
          )}
        </FileButton>
        {actions}
      </Group>
      {progress && (
        <Alert mb="sm" color={progress.phase === "done" ? "teal" : "muster"} variant="light" withCloseButton={progress.phase === "done"} closeButtonLabel="Close" onClose={() => setProgress(undefined)}>
          <Stack gap={6}>
            <Group justify="space-between" gap="xs">
              <Text size="sm" c="var(--mantine-color-text)">
                {label(progress)}
              </Text>
              {progress.phase !== "done" && (
                <Button size="compact-xs" variant="default" onClick={() => stop.current?.abort()}>
                  Stop
                </Button>
              )}
            </Group>
            {progress.phase !== "done" && <Progress value={progress.bytes > 0 ? (progress.done / progress.bytes) * 100 : 0} aria-label={percent(progress.bytes > 0 ? progress.done / progress.bytes : 0)} />}
          </Stack>
        </Alert>
      )}
      {failed && (
        <div style={{ marginBottom: 12 }}>
          <ErrorState title={failed.title} error={failed.error} retry={failed.again} />
        </div>
      )}
      {children}
    </div>
  );
}

function label(p: UploadProgress & { name: string }): string {
  const files = plural(p.files, "file");
  if (p.phase === "reading") return `Reading ${p.name}: ${files}, ${bytes(p.bytes)}`;
  if (p.phase === "sending") return `Uploading ${p.name}: ${bytes(p.done)} of ${bytes(p.bytes)} that the server does not have`;
  return `${p.name} (${files}) travels with the first task: see files in the spec. Files that begin with #! are executable.`;
}
