import { Stack, Text, Title } from "@mantine/core";
import { CircleCheck, Clock } from "lucide-react";
import type { Explanation } from "@/api/types";
import { count, localTimes, plural } from "@/ui/format";
import { TimeAgo } from "@/ui/time";

/** Where the first task of each stage would run now, and what would have to change for those that cannot. */
export function Plan({ stages }: { stages: readonly Explanation[] }) {
  return (
    <Stack gap="sm" data-testid="plan">
      {stages.map((s, i) => (
        <Stage key={s.stage ?? i} stage={s} />
      ))}
    </Stack>
  );
}

/** Reasons that are shown for workers that do not fit. */
const shown = 4;

function Stage({ stage }: { stage: Explanation }) {
  const workers = stage.workers ?? [];
  const fit = workers.filter((w) => w.fits);
  const reasons = new Map<string, string[]>();
  for (const w of workers) {
    if (w.fits) continue;
    const why = localTimes(w.why ?? w.filter ?? "it does not fit");
    reasons.set(why, [...(reasons.get(why) ?? []), w.name]);
  }
  const sorted = [...reasons].sort((a, b) => b[1].length - a[1].length);
  const now = fit.length > 0;
  const Icon = now ? CircleCheck : Clock;
  const color = now ? "var(--state-succeeded)" : stage.state === "waiting" ? "var(--state-waiting)" : "var(--state-cancelling)";
  return (
    <section aria-label={`Stage ${stage.stage ?? ""}`}>
      <Title order={3} style={{ display: "flex", gap: 6, alignItems: "center" }}>
        <Icon size={16} color={color} aria-hidden style={{ flex: "none" }} />
        <span className="truncate">{stage.stage ?? "task"}</span>
      </Title>
      <Text size="sm">
        {localTimes(stage.summary)}
        {stage.start && (
          <>
            , expected <TimeAgo at={stage.start} />
          </>
        )}
        {stage.ahead > 0 && `, after ${plural(stage.ahead, "task")} in the queue`}
      </Text>
      {fit.length > 0 && (
        <Text size="sm" c="dimmed">
          Fits: {fit.slice(0, shown).map((w) => w.name).join(", ")}
          {fit.length > shown && ` and ${count(fit.length - shown)} more`}
        </Text>
      )}
      {stage.nearest && (
        <Text size="sm" c="var(--state-cancelling)">
          {localTimes(stage.nearest)}
        </Text>
      )}
      {sorted.slice(0, shown).map(([why, names]) => (
        <Text key={why} size="sm" c="dimmed" title={names.join(", ")}>
          {names.length === 1 ? names[0] : plural(names.length, "worker")}: {why}
        </Text>
      ))}
      {sorted.length > shown && (
        <Text size="sm" c="dimmed">
          … and {plural(sorted.length - shown, "other reason")}
        </Text>
      )}
    </section>
  );
}
