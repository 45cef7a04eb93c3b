import type { AnchorProps } from "@mantine/core";
import { useCan } from "@/api/session";
import { LinkAnchor } from "./links";

/** The name of a worker: a link to its page, or plain text for a key that may not see workers, such as that of a shared link. */
export function WorkerLink({ id, name, size = "sm", underline = "hover" }: { id: string; name?: string | undefined; size?: string; underline?: NonNullable<AnchorProps["underline"]> }) {
  const sees = useCan("see workers");
  if (!sees) return <>{name ?? id}</>;
  return (
    <LinkAnchor to="/workers/$worker" params={{ worker: id }} size={size} underline={underline}>
      {name ?? id}
    </LinkAnchor>
  );
}
