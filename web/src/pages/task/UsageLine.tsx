import { Group } from "@mantine/core";
import type { Task, Usage } from "@/api/types";
import { bytes, bytesOf, cost, digits, duration, energy, percent } from "@/ui/format";

/** What an attempt used, in one line. */
export function UsageLine({ usage: u, grant }: { usage: Usage | undefined; grant: Task["grant"] }) {
  if (!u) return null;
  const parts: readonly (readonly [string, string | undefined])[] = [
    ["ran", duration(u.wall_seconds)],
    ["CPU on average", `${digits(u.cpu_avg, 2)}${grant?.cpus ? ` of ${digits(grant.cpus)}` : ""} cores`],
    ["memory peak", u.memory_peak === undefined ? undefined : grant?.memory ? bytesOf(u.memory_peak, grant.memory) : bytes(u.memory_peak)],
    ["GPU on average", u.gpu_avg === undefined ? undefined : percent(u.gpu_avg)],
    ["GPU memory peak", u.vram_peak === undefined ? undefined : bytes(u.vram_peak)],
    ["energy", u.energy_wh === undefined ? undefined : energy(u.energy_wh)],
    ["cost", u.cost === undefined ? undefined : cost(u.cost)],
  ];
  return (
    <Group gap="2px 14px" fz="sm" component="dl" m={0}>
      {parts.map(
        ([label, value]) =>
          value !== undefined && (
            <Group key={label} gap={5} wrap="nowrap">
              <dt className="dim">{label}</dt>
              <dd style={{ margin: 0, fontWeight: 600 }}>{value}</dd>
            </Group>
          ),
      )}
    </Group>
  );
}
