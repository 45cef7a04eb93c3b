import { ErrorState } from "@/ui/feedback";

/** Below a list that is shown: why it could not be read further or again. */
export function Incomplete({ error, retry }: { error: unknown; retry: () => void }) {
  if (error === undefined) return null;
  return (
    <div style={{ marginTop: 8 }}>
      <ErrorState title="The list is not complete, or out of date" error={error} retry={retry} />
    </div>
  );
}
