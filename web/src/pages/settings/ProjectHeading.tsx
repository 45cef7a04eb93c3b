import { Button, Group, TextInput } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import css from "./settings.module.css";

/** The heading of what belongs to a project, with a field that shows another project; a key of one project has none. */
export function ProjectHeading({ id, of, project, fixed }: { id: string; of: string; project: string; fixed: boolean }) {
  const [typed, setTyped] = useState(project);
  const navigate = useNavigate({ from: "/settings" });
  return (
    <Group justify="space-between" mb={8}>
      <h2 id={id} className={css.heading} style={{ margin: 0 }}>
        {of} of project {project}
      </h2>
      {!fixed && (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (typed.trim()) void navigate({ search: { project: typed.trim() }, replace: true });
          }}
        >
          <Group gap={6} wrap="nowrap">
            <TextInput size="xs" aria-label="Project" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} maxLength={64} pattern="[A-Za-z0-9_\-]+" w={130} />
            <Button size="xs" variant="default" type="submit">
              Show
            </Button>
          </Group>
        </form>
      )}
    </Group>
  );
}
