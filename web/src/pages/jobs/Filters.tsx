import { Autocomplete, Button, Checkbox, CloseButton, Pill, Popover, Select, SimpleGrid, Stack, TagsInput, Text, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { ListFilter, Search } from "lucide-react";
import { useMemo, useState } from "react";
import { jobStates, type Job, type JobState } from "@/api/types";
import { dateTime, words } from "@/ui/format";
import { StateIcon } from "@/ui/StateBadge";
import { labelsOf, ownerOf } from "./columns";
import css from "./jobs.module.css";
import type { JobsSearch } from "./search";

const times = [
  { value: "1h", label: "the last hour" },
  { value: "24h", label: "the last 24 hours" },
  { value: "7d", label: "the last 7 days" },
  { value: "30d", label: "the last 30 days" },
];
const unlimited = "";

/** The filters of the list: the name in the toolbar, all others in a panel, and each active one as a pill that removes it. */
export function Filters({ search, onChange, rows }: { search: JobsSearch; onChange: (s: JobsSearch) => void; rows: readonly Job[] }) {
  const [opened, setOpened] = useState(false);
  const [typed, setTyped] = useState<{ text: string; of: string }>();
  const name = typed && typed.of === (search.name ?? "") ? typed.text : (search.name ?? "");
  const set = (change: { [K in keyof JobsSearch]?: JobsSearch[K] | undefined }) => {
    const next = Object.fromEntries(Object.entries({ ...search, ...change }).filter(([, v]) => v !== undefined && v !== "" && !(Array.isArray(v) && v.length === 0)));
    onChange(next);
  };
  const commit = useDebouncedCallback((text: string) => set({ name: text }), 250);
  const clear = () => {
    commit.cancel();
    setTyped(undefined);
    set({ name: undefined });
  };
  const clearAll = () => {
    commit.cancel();
    setTyped(undefined);
    onChange({ ...(search.sort && { sort: search.sort }), ...(search.order && { order: search.order }) });
  };
  const options = useMemo(() => {
    const distinct = (of: (j: Job) => readonly (string | undefined)[]) => [...new Set(rows.slice(0, 2_000).flatMap(of).filter((v) => v !== undefined && v !== ""))].sort().slice(0, 100) as string[];
    return { project: distinct((j) => [j.project]), kind: distinct((j) => [j.kind]), label: distinct(labelsOf) };
  }, [rows]);

  const owners = useMemo(() => ownerNames(rows), [rows]);
  const pills: { key: string; label: string; remove: () => void }[] = [
    ...(search.state ?? []).map((s) => ({ key: `state-${s}`, label: words(s), remove: () => set({ state: search.state?.filter((x) => x !== s) }) })),
    ...(["project", "owner", "kind"] as const).flatMap((f) => (search[f] ? [{ key: f, label: `${f}: ${f === "owner" ? (owners.get(search.owner ?? "") ?? search.owner) : search[f]}`, remove: () => set({ [f]: undefined }) }] : [])),
    ...(search.label ?? []).map((l) => ({ key: `label-${l}`, label: l, remove: () => set({ label: search.label?.filter((x) => x !== l) }) })),
    ...(search.since ? [{ key: "since", label: `since ${timeLabel(search.since)}`, remove: () => set({ since: undefined }) }] : []),
    ...(search.until ? [{ key: "until", label: `until ${timeLabel(search.until)}`, remove: () => set({ until: undefined }) }] : []),
  ];
  const custom = search.since && !times.some((t) => t.value === search.since) ? [{ value: search.since, label: timeLabel(search.since) }] : [];
  return (
    <search className={css.filters}>
      <TextInput
        data-search
        value={name}
        onChange={(e) => {
          setTyped({ text: e.currentTarget.value, of: search.name ?? "" });
          commit(e.currentTarget.value);
        }}
        placeholder="Part of the name"
        aria-label="Search by name"
        leftSection={<Search size={15} aria-hidden />}
        rightSection={name && <CloseButton size="sm" aria-label="Clear the search" onClick={clear} />}
        maxLength={200}
        style={{ flex: "1 1 180px", maxWidth: 340 }}
      />
      <Popover opened={opened} onChange={setOpened} position="bottom-start" withArrow trapFocus width={340}>
        <Popover.Target>
          <Button variant="default" leftSection={<ListFilter size={15} aria-hidden />} onClick={() => setOpened(!opened)} aria-haspopup="dialog">
            Filters
          </Button>
        </Popover.Target>
        <Popover.Dropdown>
          <Stack gap="sm">
            <div>
              <Text size="sm" fw={500} mb={6} id="filter-state">
                State
              </Text>
              <SimpleGrid cols={2} spacing={8} verticalSpacing={8} role="group" aria-labelledby="filter-state">
                {jobStates.map((s) => (
                  <Checkbox
                    key={s}
                    size="xs"
                    checked={search.state?.includes(s) ?? false}
                    onChange={(e) => set({ state: e.currentTarget.checked ? jobStates.filter((x) => x === s || search.state?.includes(x)) : search.state?.filter((x: JobState) => x !== s) })}
                    label={
                      <span style={{ display: "inline-flex", alignItems: "center", gap: 5 }}>
                        <StateIcon state={s} /> {words(s)}
                      </span>
                    }
                  />
                ))}
              </SimpleGrid>
            </div>
            <Choice label="Project" value={search.project} data={options.project} onChange={(project) => set({ project })} />
            <Choice
              key={owners.get(search.owner ?? "")}
              label="Owner"
              value={owners.get(search.owner ?? "") ?? search.owner}
              data={[...owners.values()].sort()}
              onChange={(name) => set({ owner: [...owners].find(([, n]) => n === name)?.[0] ?? name })}
            />
            <Choice label="Kind" value={search.kind} data={options.kind} onChange={(kind) => set({ kind })} />
            <TagsInput
              size="xs"
              label="Labels"
              placeholder={search.label?.length ? "" : "KEY=VALUE"}
              data={options.label}
              value={search.label ?? []}
              onChange={(label) => set({ label: label.filter((l) => l.indexOf("=") > 0) })}
              maxTags={20}
              comboboxProps={{ withinPortal: false }}
            />
            <Select
              size="xs"
              label="Created in"
              data={[{ value: unlimited, label: "any time" }, ...times, ...custom]}
              value={search.since ?? unlimited}
              onChange={(v) => set({ since: v ?? undefined })}
              allowDeselect={false}
              comboboxProps={{ withinPortal: false }}
            />
            <SimpleGrid cols={2} spacing="xs">
              <TextInput size="xs" type="datetime-local" label="Created after" value={local(search.since)} onChange={(e) => set({ since: iso(e.currentTarget.value) })} />
              <TextInput size="xs" type="datetime-local" label="Created before" value={local(search.until)} onChange={(e) => set({ until: iso(e.currentTarget.value) })} />
            </SimpleGrid>
          </Stack>
        </Popover.Dropdown>
      </Popover>
      {pills.map((p) => (
        <Pill key={p.key} withRemoveButton onRemove={p.remove} removeButtonProps={{ "aria-label": `Remove the filter ${p.label}`, tabIndex: 0 }} size="md" title={p.label}>
          {p.label}
        </Pill>
      ))}
      {pills.length > 1 && (
        <Button size="compact-sm" variant="subtle" onClick={clearAll}>
          Clear all
        </Button>
      )}
    </search>
  );
}

/** The owners of some jobs: the displayed name of each id. Two keys with the same name also show their ids. */
function ownerNames(rows: readonly Job[]): ReadonlyMap<string, string> {
  const names = new Map<string, string>();
  for (const j of rows.slice(0, 2_000)) if (j.owner && names.size < 100) names.set(j.owner, ownerOf(j) ?? j.owner);
  const all = [...names.values()];
  for (const [id, name] of names) if (all.indexOf(name) !== all.lastIndexOf(name)) names.set(id, `${name} (${id})`);
  return names;
}

function Choice({ label, value, data, onChange }: { label: string; value: string | undefined; data: string[]; onChange: (v: string | undefined) => void }) {
  const [text, setText] = useState(value ?? "");
  const take = (v: string) => {
    if (v !== (value ?? "")) onChange(v || undefined);
  };
  return (
    <Autocomplete
      size="xs"
      label={label}
      data={data}
      value={text}
      onChange={setText}
      onOptionSubmit={take}
      onBlur={() => take(text.trim())}
      onKeyDown={(e) => {
        if (e.key === "Enter") take(text.trim());
      }}
      limit={20}
      maxLength={200}
      comboboxProps={{ withinPortal: false }}
    />
  );
}

function timeLabel(v: string): string {
  return times.find((t) => t.value === v)?.label.replace("the last ", "") ?? (/^\d+[mhd]$/.test(v) ? v : dateTime(v));
}

/** A date of the search as an input of the browser has it, in its zone; "" for durations. */
function local(v: string | undefined): string {
  if (!v || /^\d+[mhd]$/.test(v)) return "";
  const d = new Date(v);
  return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

const iso = (v: string) => (v && !Number.isNaN(Date.parse(v)) ? new Date(v).toISOString() : undefined);
