import { ActionIcon, Button, Group, Loader, Menu, SegmentedControl, Text, TextInput, Tooltip } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useNavigate } from "@tanstack/react-router";
import { ArrowDownToLine, ArrowUpToLine, CaseSensitive, ChevronDown, ChevronUp, CircleAlert, Clock, Download, Ellipsis, Link2, Regex, ScrollText, Search, WrapText, X } from "lucide-react";
import { useEffect, useMemo, useReducer, useRef, useState, useSyncExternalStore, type ReactNode } from "react";
import { useLive } from "@/api/live";
import { bytes, count, none } from "@/ui/format";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { act, toast } from "@/ui/toast";
import { logDownload, logSearch, logWindow, type LogOf, type LogQuery } from "../api";
import type { TaskSearch } from "../search";
import { copyText } from "@/ui/copy";
import css from "./log.module.css";
import { LogScroller, type LogScrollerHandle } from "./LogScroller";
import { LogSearch, maxMatches } from "./search";
import { LogStore } from "./store";
import { useLogKeys } from "./useLogKeys";
import { useRest } from "./useRest";

/** The output of one attempt. It is made again (by its key) for another attempt. */
export function LogTab({ task, attempt, live, search }: { task: string; attempt: number; live: boolean; search: TaskSearch }) {
  const stream = search.stream ?? "all";
  const log = useMemo<LogOf>(() => ({ task, attempt, stream }), [task, attempt, stream]);
  const navigate = useNavigate({ from: "/tasks/$task" });
  const [wrap, setWrap] = useLocalStorage({ key: "muster-log-wrap", defaultValue: true, getInitialValueInEffect: false });
  const [times, setTimes] = useLocalStorage({ key: "muster-log-times", defaultValue: false, getInitialValueInEffect: false });
  const [draft, setDraft] = useState(search.q ?? "");
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const panel = useRef<HTMLElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const scroller = useRef<LogScrollerHandle>(null);
  const [finding, setFinding] = useState(false);

  const store = useMemo(() => new LogStore((at, signal) => logWindow(log, at, signal)), [log]);
  // New lines do not render the toolbar again.
  useSyncExternalStore(store.subscribe, store.getPhase);
  const wanted = useRef(search.at);
  useEffect(() => {
    store.start(wanted.current ?? "end");
    return () => store.stop();
  }, [store]);
  useLive((batch) => {
    if (live && (batch.resync || batch.events.some((e) => e.task === task))) store.nudge();
  });

  // A link to another line was followed.
  useEffect(() => {
    if (search.at === wanted.current) return;
    wanted.current = search.at;
    if (search.at !== undefined) void store.goto(search.at);
  }, [search.at, store]);

  const change = (next: Partial<Record<keyof TaskSearch, unknown>>) => void navigate({ search: (before) => ({ ...before, tab: "log", ...next }) as TaskSearch, replace: true, resetScroll: false });
  const pick = (offset: number) => {
    wanted.current = offset;
    change({ at: offset });
  };
  const jump = (offset: number) => {
    pick(offset);
    void store.goto(offset);
  };

  const query = useMemo<LogQuery | undefined>(() => (search.q ? { q: search.q, regex: search.regex ?? false, matchCase: search.case ?? false } : undefined), [search.q, search.regex, search.case]);
  const finder = useMemo(() => query && new LogSearch(query, (at, signal) => logSearch(log, query, at, signal), redraw), [query, log]);
  useEffect(() => {
    void finder?.run();
    return () => finder?.stop();
  }, [finder]);

  const step = async (backward: boolean) => {
    if (!finder) {
      field.current?.focus();
      return;
    }
    setFinding(true);
    await act("Search", async () => {
      const from = search.at ?? (backward ? store.buffer.size : (scroller.current?.top() ?? 0) - 1);
      const found = (await finder.next(from, backward)) ?? (await finder.next(backward ? store.buffer.size + 1 : -1, backward));
      if (found === undefined) toast.ok(`"${finder.query.q}" is not in this output`);
      else jump(found);
    });
    setFinding(false);
  };
  const submit = () => {
    if (draft === (search.q ?? "")) {
      void step(false);
      return;
    }
    change({ q: draft || undefined, at: undefined });
    wanted.current = undefined;
  };
  // A new search shows its first match at once.
  const jumped = useRef(finder);
  useEffect(() => {
    if (jumped.current === finder || !finder) return;
    jumped.current = finder;
    void step(false);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each search
  }, [finder]);

  const firstError = async () => {
    setFinding(true);
    await act("Search", async () => {
      const errors = new LogSearch({ q: "", regex: false, matchCase: false, errors: true }, (at, signal) => logSearch(log, { q: "", regex: false, matchCase: false, errors: true }, at, signal), () => undefined);
      const found = await errors.next(-1, false);
      if (found === undefined) toast.ok("No line of this output looks like an error");
      else jump(found);
    });
    setFinding(false);
  };
  const toggleFollow = () => (store.following ? store.leaveEnd() : void store.follow());
  const copyLink = () => {
    const url = new URL(location.href);
    url.searchParams.set("tab", "log");
    url.searchParams.set("attempt", String(attempt));
    url.searchParams.set("at", String(search.at ?? scroller.current?.top() ?? 0));
    void copyText(url.href).then((done) => (done ? toast.ok("Copied the link to this line") : toast.fail("Copy failed", new Error("The browser refused. Copy the address of the page."))));
  };
  const clear = () => {
    setDraft("");
    change({ q: undefined });
  };

  useLogKeys(
    {
      "/": () => field.current?.focus(),
      n: () => void step(false),
      N: () => void step(true),
      g: () => void store.goto(0),
      G: () => void store.follow(),
      Home: () => void store.goto(0),
      End: () => void store.follow(),
      f: toggleFollow,
      w: () => setWrap(!wrap),
      t: () => setTimes(!times),
      e: () => void firstError(),
    },
    panel,
  );

  const { buffer } = store;
  const stage = useRef<HTMLDivElement>(null);
  const height = useRest(stage);
  const empty = !store.loading && !store.error && buffer.lines.length === 0;
  return (
    <section ref={panel} className={css.panel} aria-label="Log">
      <div className={css.bar}>
        <form
          className={css.find}
          role="search"
          onSubmit={(e) => {
            e.preventDefault();
            submit();
          }}
        >
          <TextInput
            ref={field}
            data-search
            size="xs"
            type="text"
            placeholder="Search the whole log"
            aria-label="Search the whole log"
            value={draft}
            maxLength={1000}
            leftSection={finding || finder?.busy ? <Loader size={12} /> : <Search size={14} aria-hidden />}
            rightSection={
              draft && (
                <ActionIcon size="xs" onClick={clear} aria-label="Clear the search">
                  <X size={13} aria-hidden />
                </ActionIcon>
              )
            }
            onChange={(e) => setDraft(e.currentTarget.value)}
            onKeyDown={(e) => {
              if (e.key === "Escape") scroller.current?.focus();
              else if (e.key === "Enter" && e.shiftKey && draft === search.q) {
                e.preventDefault();
                void step(true);
              }
            }}
          />
          <Tool label="Match case" on={query?.matchCase ?? search.case ?? false} onClick={() => change({ case: search.case ? undefined : true, at: undefined })} icon={<CaseSensitive size={16} aria-hidden />} />
          <Tool label="Regular expression (RE2)" on={search.regex ?? false} onClick={() => change({ regex: search.regex ? undefined : true, at: undefined })} icon={<Regex size={15} aria-hidden />} />
          <Tool label="Previous match" keys="N" disabled={!finder} onClick={() => void step(true)} icon={<ChevronUp size={16} aria-hidden />} />
          <Tool label="Next match" keys="n" disabled={!finder} onClick={() => void step(false)} icon={<ChevronDown size={16} aria-hidden />} />
          {finder && (
            <span className={css.found} role="status">
              {found(finder, search.at)}
            </span>
          )}
        </form>
        <SegmentedControl size="xs" aria-label="Stream" value={stream} onChange={(v) => change({ stream: v === "all" ? undefined : v, at: undefined })} data={[{ value: "all", label: "All" }, { value: "stdout", label: "stdout" }, { value: "stderr", label: "stderr" }]} />
        <div className={css.tools}>
          <Button size="compact-xs" variant="default" leftSection={<CircleAlert size={13} aria-hidden />} onClick={() => void firstError()} aria-keyshortcuts="e" title="Jump to the first line that looks like an error (e)">
            First error
          </Button>
          {live && (
            <Button size="compact-xs" variant={store.following ? "light" : "default"} leftSection={<ScrollText size={13} aria-hidden />} aria-pressed={store.following} onClick={toggleFollow} aria-keyshortcuts="f" title="Stay at the end as output comes (f)">
              {store.following ? "Following" : "Follow"}
            </Button>
          )}
          <Tool label="Wrap long lines" keys="w" on={wrap} onClick={() => setWrap(!wrap)} icon={<WrapText size={16} aria-hidden />} />
          <Tool label="Show times" keys="t" on={times} onClick={() => setTimes(!times)} icon={<Clock size={15} aria-hidden />} />
          <Tool wide label="Beginning" keys="g" onClick={() => void store.goto(0)} icon={<ArrowUpToLine size={16} aria-hidden />} />
          <Tool wide label="End" keys="G" onClick={() => void store.follow()} icon={<ArrowDownToLine size={16} aria-hidden />} />
          <Menu position="bottom-end">
            <Menu.Target>
              <ActionIcon aria-label="More about this log">
                <Ellipsis size={16} aria-hidden />
              </ActionIcon>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item component="a" href={logDownload(log)} download leftSection={<Download size={15} aria-hidden />}>
                Download {stream === "all" ? "all output" : stream}
              </Menu.Item>
              <Menu.Item leftSection={<Link2 size={15} aria-hidden />} onClick={copyLink}>
                Copy a link to {search.at === undefined ? "the top line" : "the marked line"}
              </Menu.Item>
            </Menu.Dropdown>
          </Menu>
        </div>
      </div>
      <div ref={stage} className={css.stage} style={{ height }}>
        {store.error !== undefined && buffer.lines.length === 0 ? (
          <div className={css.centre}>
            <ErrorState error={store.error} retry={() => store.start(wanted.current ?? "end")} title="The log could not be loaded" />
          </div>
        ) : empty ? (
          <div className={css.centre} data-testid="log-empty">
            <EmptyState icon={ScrollText} title={live ? "No output yet" : stream === "all" ? "This attempt wrote no output" : `Nothing on ${stream}`}>
              {live ? "Lines appear here as the task writes them. A program that buffers its output shows it late: for Python, set PYTHONUNBUFFERED=1." : stream !== "all" && "The other stream may have some."}
            </EmptyState>
          </div>
        ) : (
          <>
            {store.loading && (
              <Group className={css.status} gap={6} role="status">
                <Loader size={14} />
                <Text size="xs">Loading</Text>
              </Group>
            )}
            <LogScroller ref={scroller} store={store} wrap={wrap} times={times} live={live} current={search.at} query={query} ticks={finder?.matches ?? noTicks} onPick={pick} />
          </>
        )}
      </div>
      <Foot store={store} live={live} />
    </section>
  );
}

const noTicks: readonly number[] = [];

function Foot({ store, live }: { store: LogStore; live: boolean }) {
  const size = useSyncExternalStore(store.subscribe, () => store.buffer.size);
  const phase = useSyncExternalStore(store.subscribe, store.getPhase);
  const lost = phase.includes("error") && !phase.includes("empty");
  return (
    <div className={css.foot}>
      <span>{bytes(size)}</span>
      <span>{live ? (phase.includes("following") ? "live, at the end" : "live") : size > 0 ? "complete" : none}</span>
      {lost && <span role="alert">connection lost, trying again</span>}
      <Text component="span" inherit visibleFrom="sm">
        Keys: / search, n N next and previous match, g G beginning and end, f follow, w wrap, t times, e first error
      </Text>
    </div>
  );
}

function found(finder: LogSearch, at: number | undefined): string {
  if (finder.error) return "search failed"; // a message says why
  const n = finder.matches.length;
  const more = n >= maxMatches ? "+" : finder.busy ? "…" : "";
  if (n === 0) return finder.busy ? "searching…" : "no match";
  const position = finder.position(at);
  return position ? `${count(position)} of ${count(n)}${more}` : `${count(n)}${more} ${n === 1 ? "match" : "matches"}`;
}

function Tool({ label, keys, on, disabled, wide = false, onClick, icon }: { label: string; keys?: string; on?: boolean; disabled?: boolean; /** Not on phones. */ wide?: boolean; onClick: () => void; icon: ReactNode }) {
  return (
    <Tooltip label={keys ? `${label} (${keys})` : label}>
      <ActionIcon onClick={onClick} aria-label={label} aria-pressed={on} aria-keyshortcuts={keys} {...(wide && { visibleFrom: "sm" })} disabled={disabled ?? false} variant={on ? "light" : "subtle"} color={on ? "muster" : "gray"}>
        {icon}
      </ActionIcon>
    </Tooltip>
  );
}
