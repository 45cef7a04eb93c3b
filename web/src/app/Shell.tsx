import { ActionIcon, AppShell, Button, Group, Kbd, Menu, Text, Tooltip, useMantineColorScheme } from "@mantine/core";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { CircleUser, Keyboard, LogOut, Monitor, Search } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { live } from "@/api/live";
import { queryClient } from "@/api/queries";
import { Refresher } from "@/api/refresh";
import { useSession } from "@/api/session";
import { ConnectionBanner, ConnectionDot } from "./Connection";
import { Logo } from "./Logo";
import { pagesOf } from "./nav";
import { schemes } from "./schemes";
import css from "./Shell.module.css";
import { useShortcuts } from "./shortcuts";
import { signOut } from "./signOut";

const loadPalette = () => import("./Palette");
const Palette = lazy(loadPalette);
const ShortcutHelp = lazy(() => import("./ShortcutHelp"));

/** The frame of all pages: navigation, search, connection, account. */
export function Shell() {
  const { me, status } = useSession();
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const items = useMemo(() => pagesOf(me), [me]);
  useShortcuts({ items, openPalette: () => setPalette(true), openHelp: () => setHelp(true) });

  // What is typed right after Ctrl K must not be lost while the search loads.
  useEffect(() => {
    if (status !== "in") return;
    const timer = setTimeout(() => void loadPalette().catch(() => undefined), 2_000);
    return () => clearTimeout(timer);
  }, [status]);

  useEffect(() => {
    if (status !== "in") return;
    live.start();
    const stop = new Refresher(queryClient).run();
    return () => {
      stop();
      live.stop();
    };
  }, [status]);

  const path = useRouterState({ select: (s) => s.location.pathname });
  const here = (to: string) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`) || (to === "/jobs" && (path.startsWith("/tasks/") || path === "/compare")));
  return (
    <AppShell header={{ height: 52 }} navbar={{ width: { base: 0, sm: 64, lg: 200 }, breakpoint: "sm", collapsed: { mobile: true } }} footer={{ height: { base: 58, sm: 0 } }} padding={0}>
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <AppShell.Header className={css.header}>
        <Link to="/" className={css.brand} aria-label="Muster, overview">
          <Logo />
          <Text fw={700} component="span" visibleFrom="sm">
            Muster
          </Text>
        </Link>
        <Button variant="default" className={css.search} onClick={() => setPalette(true)} leftSection={<Search size={15} aria-hidden />} rightSection={<Kbd size="xs">Ctrl K</Kbd>} justify="space-between" title="Search jobs, tasks, workers and actions">
          Search
        </Button>
        <Group gap={4} wrap="nowrap" ml="auto">
          <ConnectionDot />
          <Tooltip label="Keyboard shortcuts">
            <ActionIcon size="lg" onClick={() => setHelp(true)} aria-label="Keyboard shortcuts" visibleFrom="sm">
              <Keyboard size={18} aria-hidden />
            </ActionIcon>
          </Tooltip>
          <SchemeMenu />
          <AccountMenu />
        </Group>
      </AppShell.Header>
      <AppShell.Navbar className={css.navbar} aria-label="Pages" visibleFrom="sm">
        {items.map((n) => (
          <Tooltip key={n.to} label={n.label} position="right" events={{ hover: true, focus: true, touch: false }} classNames={{ tooltip: css.railTip ?? "" }}>
            <Link to={n.to} className={css.item} data-active={here(n.to) || undefined} aria-current={here(n.to) ? "page" : undefined}>
              <n.icon size={19} strokeWidth={1.8} aria-hidden />
              <span className={css.label}>{n.label}</span>
            </Link>
          </Tooltip>
        ))}
      </AppShell.Navbar>
      <AppShell.Footer className={css.tabs} hiddenFrom="sm" component="nav" aria-label="Pages">
        {items.map((n) => (
          <Link key={n.to} to={n.to} className={css.tab} data-active={here(n.to) || undefined} aria-current={here(n.to) ? "page" : undefined}>
            <n.icon size={20} strokeWidth={1.8} aria-hidden />
            {n.label}
          </Link>
        ))}
      </AppShell.Footer>
      <AppShell.Main id="content" tabIndex={-1} className={css.main}>
        <ConnectionBanner />
        <div className={css.page}>
          <Outlet />
        </div>
      </AppShell.Main>
      <Suspense>
        {palette && <Palette onClose={() => setPalette(false)} items={items} />}
        {help && <ShortcutHelp items={items} onClose={() => setHelp(false)} />}
      </Suspense>
    </AppShell>
  );
}

function SchemeMenu() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Icon = schemes.find((s) => s.value === colorScheme)?.icon ?? Monitor;
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon size="lg" aria-label="Colour scheme">
          <Icon size={18} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {schemes.map((s) => (
          <Menu.Item key={s.value} role="menuitemradio" aria-checked={colorScheme === s.value} leftSection={<s.icon size={16} aria-hidden />} onClick={() => setColorScheme(s.value)} fw={colorScheme === s.value ? 600 : undefined}>
            {s.label}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

function AccountMenu() {
  const { me } = useSession();
  if (!me) return null;
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <ActionIcon size="lg" aria-label={`Account: ${me.name}`}>
          <CircleUser size={18} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {me.name}
          <br />
          {me.role}
          {me.project ? ` of project ${me.project}` : ""}
        </Menu.Label>
        <Menu.Item leftSection={<LogOut size={16} aria-hidden />} onClick={() => void signOut()}>
          Sign out
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
