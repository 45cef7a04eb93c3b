import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { messageOf } from "@/api/error";

/** Asks before an action that cannot be taken back; it stays open while the action runs, and shows the error if that fails. */
export function ConfirmDialog({ opened, onClose, title, children, action, danger = false, onConfirm }: {
  opened: boolean;
  onClose: () => void;
  title: string;
  children?: ReactNode;
  /** The verb on the button: "Cancel 3 jobs". */
  action: string;
  danger?: boolean;
  onConfirm: () => Promise<unknown>;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const [was, setWas] = useState(opened);
  if (was !== opened) {
    setWas(opened);
    setError("");
  }
  const close = () => {
    if (!busy) onClose();
  };
  const confirm = async () => {
    setBusy(true);
    setError("");
    try {
      await onConfirm();
      onClose();
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal opened={opened} onClose={close} title={title} closeButtonProps={{ "aria-label": "Close", disabled: busy }}>
      <Stack>
        {children && <Text component="div">{children}</Text>}
        {error && (
          <Text c="var(--state-failed)" role="alert">
            {error}
          </Text>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={close} disabled={busy}>
            Close
          </Button>
          <Button color={danger ? "red.9" : undefined} loading={busy} onClick={() => void confirm()} data-autofocus>
            {action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
