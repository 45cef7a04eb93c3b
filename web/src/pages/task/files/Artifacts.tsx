import { ActionIcon, Group, Text, TextInput, Title, Tooltip, UnstyledButton } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { ChevronDown, ChevronRight, Download, File, FileBox, FileCode, FileImage, FileJson, FileText, Film, Folder as FolderIcon, Music, Radio, Search, Table2, X, type LucideIcon } from "lucide-react";
import { useMemo, useState } from "react";
import type { Artifact, Task } from "@/api/types";
import { EmptyState } from "@/ui/feedback";
import { bytes, count, plural } from "@/ui/format";
import { artifactUrl } from "../api";
import type { TaskSearch } from "../search";
import css from "./files.module.css";
import { JsonTree } from "./JsonTree";
import { kindOf, type FileKind } from "./kinds";
import { Preview } from "./Preview";
import { treeOf, type Folder } from "./tree";

const icons: Record<FileKind, LucideIcon> = { image: FileImage, csv: Table2, parquet: Table2, json: FileJson, jsonl: FileJson, markdown: FileText, text: FileCode, audio: Music, video: Film, unknown: File };

/** Files in a folder that are listed at once. */
const page = 300;

/** The result and the files of an attempt, each with a preview. */
export function Artifacts({ task, artifacts, attempt, live, search }: { task: Task; artifacts: readonly Artifact[]; attempt: number | undefined; live: boolean; search: TaskSearch }) {
  const navigate = useNavigate({ from: "/tasks/$task" });
  const [filter, setFilter] = useState("");
  const found = useMemo(() => {
    const f = filter.trim().toLowerCase();
    return f ? artifacts.filter((a) => a.name.toLowerCase().includes(f)) : artifacts;
  }, [artifacts, filter]);
  const tree = useMemo(() => treeOf(found), [found]);
  const open = (file: string | undefined) => void navigate({ search: (s) => ({ ...s, tab: "artifacts", file }), replace: true, resetScroll: false });
  const chosen = artifacts.find((a) => a.name === search.file);
  const showsResult = task.result !== undefined && task.result !== null && (attempt === undefined || attempt === task.attempt);
  return (
    <>
      {showsResult && (
        <section className="card" aria-labelledby="result" style={{ marginBottom: 12 }}>
          <Title order={2} id="result" mb={6}>
            Result
          </Title>
          <JsonTree value={task.result} open={2} />
        </section>
      )}
      {artifacts.length === 0 ? (
        <div className="card">
          <EmptyState icon={FileBox} title={live ? "No files yet" : "No files"}>
            {live ? (
              <>
                What the task writes into <span className="mono">$MUSTER_OUT/live</span> is shown here while it runs; files named in <span className="mono">outputs</span> come at its end.
              </>
            ) : (
              <>
                Files that a task leaves in <span className="mono">$MUSTER_OUT</span>, or that <span className="mono">outputs</span> names, are kept here.
              </>
            )}
          </EmptyState>
        </div>
      ) : (
        <div className={css.split} data-open={chosen ? "" : undefined}>
          <section className={css.list} aria-label="Files">
            <Group gap={8} p={8} wrap="nowrap" className={css.listHead}>
              {artifacts.length > 8 ? <TextInput data-search size="xs" flex={1} value={filter} onChange={(e) => setFilter(e.currentTarget.value)} placeholder="Filter files" aria-label="Filter files" leftSection={<Search size={13} aria-hidden />} /> : <span style={{ flex: 1 }} />}
              <Text size="xs" c="dimmed" className="nowrap">
                {plural(tree.count, "file")}, {bytes(tree.size)}
              </Text>
            </Group>
            {found.length === 0 ? (
              <Text size="sm" c="dimmed" p="md">
                No file has “{filter}” in its name.
              </Text>
            ) : (
              <ul className={css.tree}>
                <Contents folder={tree} depth={0} chosen={search.file} onOpen={open} task={task.id} attempt={attempt} live={live} all={filter.trim() !== ""} />
              </ul>
            )}
          </section>
          <section className={css.preview} aria-label={chosen ? `Preview of ${chosen.name}` : "Preview"}>
            {chosen ? (
              <>
                <Group gap={8} wrap="nowrap" className={css.previewHead}>
                  <Text fw={600} className="truncate" title={chosen.name} flex={1} size="sm">
                    {chosen.name}
                  </Text>
                  <Text size="xs" c="dimmed" className="nowrap">
                    {bytes(chosen.size)}
                  </Text>
                  <Tooltip label="Download">
                    <ActionIcon component="a" href={artifactUrl(task.id, attempt, chosen, true)} download aria-label={`Download ${chosen.name}`}>
                      <Download size={16} aria-hidden />
                    </ActionIcon>
                  </Tooltip>
                  <Tooltip label="Close the preview">
                    <ActionIcon onClick={() => open(undefined)} aria-label="Close the preview">
                      <X size={16} aria-hidden />
                    </ActionIcon>
                  </Tooltip>
                </Group>
                {/* A live file has a new hash when it has changed. */}
                <Preview file={chosen} url={artifactUrl(task.id, attempt, chosen)} artifacts={artifacts} urlOf={(a) => artifactUrl(task.id, attempt, a)} />
              </>
            ) : (
              <EmptyState icon={FileText} title={search.file ? "This file is not there" : "Choose a file to see it"}>
                {search.file ? (live ? `The task has not written ${search.file} yet.` : `This attempt has no file ${search.file}.`) : "Images, tables, JSON, Parquet, Markdown, text, audio and video are shown here; of large files, the beginning."}
              </EmptyState>
            )}
          </section>
        </div>
      )}
    </>
  );
}

interface ContentsProps {
  readonly folder: Folder;
  readonly depth: number;
  readonly chosen: string | undefined;
  readonly onOpen: (name: string) => void;
  readonly task: string;
  readonly attempt: number | undefined;
  readonly live: boolean;
  /** All folders are open. */
  readonly all: boolean;
}

function Contents(props: ContentsProps) {
  const { folder, depth, chosen, onOpen, task, attempt, live } = props;
  const [shown, setShown] = useState(page);
  const indent = { paddingLeft: 10 + depth * 16 };
  return (
    <>
      {folder.folders.map((f) => (
        <SubFolder key={f.path} {...props} folder={f} />
      ))}
      {folder.files.slice(0, shown).map((a) => {
        const Icon = icons[kindOf(a.name)];
        const base = a.name.slice(folder.path.length);
        return (
          <li key={a.name} className={css.item} data-chosen={a.name === chosen || undefined}>
            <UnstyledButton className={css.name} style={indent} onClick={() => onOpen(a.name)} aria-current={a.name === chosen || undefined} title={a.name}>
              <Icon size={15} aria-hidden className={css.icon} />
              <span className="truncate">{base}</span>
              {live && a.name.startsWith("live/") && <Radio size={13} className={css.live} aria-label="refreshed while the task runs" />}
              <span className={css.size}>{bytes(a.size)}</span>
            </UnstyledButton>
            <ActionIcon component="a" size="sm" href={artifactUrl(task, attempt, a, true)} download aria-label={`Download ${a.name}`}>
              <Download size={14} aria-hidden />
            </ActionIcon>
          </li>
        );
      })}
      {folder.files.length > shown && (
        <li>
          <UnstyledButton className={css.name} style={indent} onClick={() => setShown(shown + page)} c="var(--mantine-color-anchor)">
            Show more ({count(folder.files.length - shown)} left)
          </UnstyledButton>
        </li>
      )}
    </>
  );
}

function SubFolder(props: ContentsProps) {
  const { folder: f, depth, chosen, all } = props;
  const [opened, setOpened] = useState(depth === 0 ? f.count <= 50 : f.count <= 10);
  const shown = opened || all || chosen?.startsWith(f.path) === true;
  return (
    <li>
      <UnstyledButton className={css.name} style={{ paddingLeft: 10 + depth * 16, width: "100%" }} aria-expanded={shown} onClick={() => setOpened(!shown)}>
        {shown ? <ChevronDown size={14} aria-hidden className={css.icon} /> : <ChevronRight size={14} aria-hidden className={css.icon} />}
        <FolderIcon size={15} aria-hidden className={css.icon} />
        <span className="truncate">{f.name}</span>
        <span className={css.size}>
          {plural(f.count, "file")}, {bytes(f.size)}
        </span>
      </UnstyledButton>
      {shown && (
        <ul className={css.tree}>
          <Contents {...props} depth={depth + 1} />
        </ul>
      )}
    </li>
  );
}
