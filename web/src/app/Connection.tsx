import { Button, Tooltip } from "@mantine/core";
import { Radio, RotateCw, WifiOff } from "lucide-react";
import { live, useConnection } from "@/api/live";
import { ago, dateTime } from "@/ui/format";
import { useNow } from "@/ui/time";
import css from "./Connection.module.css";

const words = {
  connecting: "Connecting",
  open: "Live",
  lost: "Disconnected",
  paused: "Paused",
} as const;

/** Whether the page is live: icon and word. */
export function ConnectionDot() {
  const { status, since } = useConnection();
  const Icon = status === "lost" ? WifiOff : Radio;
  return (
    <Tooltip label={`${words[status]} since ${dateTime(since)}`}>
      <span className={css.dot} data-status={status} role="status" data-testid="connection">
        <Icon size={15} aria-hidden />
        <span className={css.word}>{words[status]}</span>
      </span>
    </Tooltip>
  );
}

/** Says that what is shown may be old, and since when. */
export function ConnectionBanner() {
  const { status, since, message } = useConnection();
  if (status !== "lost") return null;
  return (
    <div className={css.banner} role="alert" data-testid="connection-lost">
      <WifiOff size={16} aria-hidden />
      <span>
        <Lost since={since} />
        {message ? `: ${message}.` : "."} The page shows what was known then, and reconnects by itself.
      </span>
      <Button size="compact-xs" variant="default" leftSection={<RotateCw size={12} aria-hidden />} onClick={live.retry}>
        Connect now
      </Button>
    </div>
  );
}

function Lost({ since }: { since: number }) {
  return <>Connection lost {ago(new Date(since).toISOString(), useNow())}</>;
}
