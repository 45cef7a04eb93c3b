import { Button, Group, Modal, Select, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "@/api/client";
import { messageOf } from "@/api/error";
import { ErrorState } from "@/ui/feedback";
import type { Schema } from "./complete";
import { fieldsOf, valueOf, type Field } from "./spec";

/** A form for the input of a kind, generated from its schema. */
export function KindForm({ opened, onClose, onApply }: { opened: boolean; onClose: () => void; onApply: (kind: string, input: Record<string, unknown> | undefined) => void }) {
  return (
    <Modal opened={opened} onClose={onClose} title="Fill in a kind" size="lg">
      {opened && (
        <Form
          onApply={(kind, input) => {
            onApply(kind, input);
            onClose();
          }}
        />
      )}
    </Modal>
  );
}

function Form({ onApply }: { onApply: (kind: string, input: Record<string, unknown> | undefined) => void }) {
  const kinds = useQuery(get("/api/v1/kinds", {}));
  const [name, setName] = useState<string | null>(null);
  const [values, setValues] = useState<Readonly<Record<string, string>>>({});
  const [tried, setTried] = useState(false);
  const [failed, setFailed] = useState("");
  const kind = kinds.data?.kinds.find((k) => k.name === name);
  const fields = fieldsOf(kind?.input as Schema | undefined);
  const results = fields.map((f) => ({ field: f, ...valueOf(f, values[f.name] ?? "") }));
  const apply = () => {
    setTried(true);
    if (!kind || results.some((r) => r.error)) return;
    const input = Object.fromEntries(results.filter((r) => r.value !== undefined).map((r) => [r.field.name, r.value]));
    try {
      onApply(kind.name, Object.keys(input).length > 0 ? input : undefined);
    } catch (e) {
      setFailed(messageOf(e));
    }
  };
  if (kinds.isError) return <ErrorState error={kinds.error} retry={() => void kinds.refetch()} />;
  return (
    <Stack>
      <Select
        label="Kind"
        placeholder="What the task does"
        searchable
        data={(kinds.data?.kinds ?? []).filter((k) => k.run !== "must").map((k) => ({ value: k.name, label: k.offered === 0 ? `${k.name} (no worker offers it now)` : k.name }))}
        value={name}
        onChange={(v) => {
          setName(v);
          setValues({});
          setTried(false);
        }}
        description={kind?.about}
        data-autofocus
      />
      {kind && fields.length === 0 && <Text size="sm">It takes no input.</Text>}
      {results.map(({ field, error }) => (
        <Input key={field.name} field={field} value={values[field.name] ?? ""} error={tried || values[field.name] ? error : undefined} onChange={(v) => setValues({ ...values, [field.name]: v })} />
      ))}
      {failed && (
        <Text c="var(--state-failed)" size="sm" role="alert">
          {failed}
        </Text>
      )}
      <Group justify="flex-end">
        <Button disabled={!kind} onClick={apply}>
          Write it to the spec
        </Button>
      </Group>
    </Stack>
  );
}

function Input({ field, value, error, onChange }: { field: Field; value: string; error: string | undefined; onChange: (v: string) => void }) {
  const shared = { label: field.name, description: field.about, error, withAsterisk: field.required, ...(field.placeholder && { placeholder: `default: ${field.placeholder}` }) };
  switch (field.type) {
    case "choice":
      return <Select {...shared} clearable data={[...(field.choices ?? [])]} value={value || null} onChange={(v) => onChange(v ?? "")} />;
    case "boolean":
      return <Switch label={field.name} description={field.about} checked={(value || field.placeholder) === "true"} onChange={(e) => onChange(String(e.currentTarget.checked))} />;
    case "number":
      return <TextInput {...shared} inputMode="decimal" value={value} onChange={(e) => onChange(e.currentTarget.value)} />;
    case "text":
    case "json":
      return <TextInput {...shared} value={value} onChange={(e) => onChange(e.currentTarget.value)} />;
  }
}
