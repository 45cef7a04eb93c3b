import { ActionIcon, Button, Menu, Popover, Stack, TextInput, Tooltip } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { Bookmark, EllipsisVertical, Link2, Trash2 } from "lucide-react";
import { useMemo, useState } from "react";
import { copyText } from "@/ui/copy";
import { toast } from "@/ui/toast";
import css from "./jobs.module.css";
import { builtIn, canonical, maxViewName, read, save } from "./model/views";
import { validateJobs, type JobsSearch } from "./search";

/** Searches with a name: some that everybody has, and those that the user saved in this browser. */
export function Views({ search, onChange }: { search: JobsSearch; onChange: (s: JobsSearch) => void }) {
  const [stored, setStored] = useLocalStorage<unknown>({ key: "muster-job-views", defaultValue: [] });
  const views = useMemo(() => read(stored, validateJobs), [stored]);
  const here = canonical(search);
  const known = [...builtIn, ...views].some((v) => canonical(v.search) === here);
  const current = views.find((v) => canonical(v.search) === here);
  const share = async () => {
    if (await copyText(location.href)) toast.ok("The link to this view is copied");
    else toast.fail("Copy failed", new Error("The browser does not allow it here. The address of this page is the link."));
  };
  return (
    <nav className={css.views} aria-label="Saved views">
      {[...builtIn, ...views].map((v) => (
        <Link key={v.name} to="/jobs" search={v.search} className={css.view} data-active={canonical(v.search) === here || undefined} aria-current={canonical(v.search) === here ? "page" : undefined} title={v.name}>
          <span className="truncate">{v.name}</span>
        </Link>
      ))}
      {!known && (
        <SaveView
          onSave={(name) => {
            setStored(save(views, name, search));
            onChange(search);
          }}
        />
      )}
      {(current || !known) && (
        <Menu position="bottom-end">
          <Menu.Target>
            <ActionIcon aria-label="More about this view">
              <EllipsisVertical size={16} aria-hidden />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={<Link2 size={15} aria-hidden />} onClick={() => void share()}>
              Copy the link
            </Menu.Item>
            {current && (
              <Menu.Item leftSection={<Trash2 size={15} aria-hidden />} onClick={() => setStored(views.filter((v) => v !== current))}>
                Delete the view {current.name}
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      )}
    </nav>
  );
}

function SaveView({ onSave }: { onSave: (name: string) => void }) {
  const [opened, setOpened] = useState(false);
  const [name, setName] = useState("");
  const submit = () => {
    if (name.trim() === "") return;
    onSave(name);
    setOpened(false);
    setName("");
  };
  return (
    <Popover opened={opened} onChange={setOpened} trapFocus position="bottom-start" withArrow>
      <Popover.Target>
        <Tooltip label="Keep these filters under a name, in this browser">
          <Button size="compact-sm" variant="subtle" leftSection={<Bookmark size={14} aria-hidden />} onClick={() => setOpened(!opened)}>
            Save view
          </Button>
        </Tooltip>
      </Popover.Target>
      <Popover.Dropdown>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            submit();
          }}
        >
          <Stack gap="xs">
            <TextInput label="Name of the view" value={name} maxLength={maxViewName} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
            <Button type="submit" size="xs" disabled={name.trim() === ""}>
              Save
            </Button>
          </Stack>
        </form>
      </Popover.Dropdown>
    </Popover>
  );
}
