import { Alert, Button, Group, Modal, Stack } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { messageOf } from "@/api/error";

/** A form in a dialog: it stays open while it is carried out, and shows the error if that fails. */
export function FormDialog({ title, action, icon, disabled, onSubmit, onClose, children }: {
  title: string;
  /** The verb on the button: "Create the key". */
  action: string;
  icon?: ReactNode;
  disabled: boolean;
  onSubmit: () => Promise<unknown>;
  onClose: () => void;
  children: ReactNode;
}) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    setError("");
    try {
      await onSubmit();
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };
  const close = () => {
    if (!busy) onClose();
  };
  return (
    <Modal opened onClose={close} title={title} closeButtonProps={{ "aria-label": "Close", disabled: busy }}>
      <form
        noValidate
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <Stack gap="sm">
          {children}
          {error && (
            <Alert color="red" variant="light" role="alert" c="var(--mantine-color-text)">
              {error}
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={close} disabled={busy}>
              Close
            </Button>
            <Button type="submit" loading={busy} disabled={disabled} leftSection={icon}>
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
