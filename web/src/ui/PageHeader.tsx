import { Anchor, Breadcrumbs, Group, Title } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";

/** The title of a page, which is also the document's; `to` of crumbs are paths such as "/jobs/17". */
export function PageHeader({ title, document: name, badge, crumbs = [], actions, children }: {
  title: ReactNode;
  /** The tab's title if title is not a string. */
  document?: string;
  badge?: ReactNode;
  crumbs?: readonly { label: string; to: string }[];
  actions?: ReactNode;
  children?: ReactNode;
}) {
  const text = name ?? (typeof title === "string" ? title : "");
  useEffect(() => {
    document.title = text ? `${text} · Muster` : "Muster";
  }, [text]);
  return (
    <header style={{ marginBottom: 16 }}>
      {crumbs.length > 0 && (
        <Breadcrumbs mb={4} separatorMargin={6} component="nav" aria-label="Breadcrumbs" styles={{ root: { flexWrap: "wrap" }, breadcrumb: { minWidth: 0, maxWidth: "100%", overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap" } }}>
          {crumbs.map((c) => (
            <Anchor key={c.to} component={Link} to={c.to} size="sm">
              {c.label}
            </Anchor>
          ))}
        </Breadcrumbs>
      )}
      <Group justify="space-between" align="center" gap="sm">
        <Group gap="sm" style={{ minWidth: 0 }}>
          <Title order={1}>{title}</Title>
          {badge}
        </Group>
        {actions && <Group gap="xs">{actions}</Group>}
      </Group>
      {children}
    </header>
  );
}
