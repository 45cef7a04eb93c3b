import { Alert, Button, Group, Stack, Text, Title } from "@mantine/core";
import { RotateCw, TriangleAlert, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { ApiError, messageOf } from "@/api/error";

/** What a page or list shows when it has nothing: why, and what to do. */
export function EmptyState({ icon: Icon, title, children, action }: { icon: LucideIcon; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <Stack align="center" gap="xs" py={48} px="md" ta="center" data-testid="empty">
      <Icon size={36} strokeWidth={1.4} aria-hidden style={{ color: "var(--mantine-color-dimmed)" }} />
      <Title order={2}>{title}</Title>
      {children && (
        <Text c="dimmed" maw={460} component="div">
          {children}
        </Text>
      )}
      {action && <Group mt="sm">{action}</Group>}
    </Stack>
  );
}

/** A failure of a part of the page, with what to do about it. */
export function ErrorState({ error, retry, title }: { error: unknown; retry?: (() => void) | undefined; title?: string }) {
  const missing = error instanceof ApiError && error.status === 404;
  return (
    <Alert color={missing ? "gray" : "red"} variant="light" icon={<TriangleAlert size={18} aria-hidden />} title={title ?? (missing ? "Not found" : "This could not be loaded")} role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm" c="var(--mantine-color-text)">
          {messageOf(error)}
        </Text>
        {error instanceof ApiError &&
          error.errors.map((e, i) => (
            <Text key={i} size="sm" c="var(--mantine-color-text)">
              <span className="mono">{e.line ? `line ${e.line}, ${e.path}` : e.path}</span>: {e.message}
              {e.hint && ` (${e.hint})`}
            </Text>
          ))}
        {retry && (
          <Button size="xs" variant="default" leftSection={<RotateCw size={14} aria-hidden />} onClick={retry}>
            Try again
          </Button>
        )}
      </Stack>
    </Alert>
  );
}
