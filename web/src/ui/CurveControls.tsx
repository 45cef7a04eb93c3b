import { Group, Slider, Switch, Text } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";

/** How curves of metrics are drawn: one preference for all pages, kept in the browser. */
export function useCurveStyle() {
  const [weight, setWeight] = useLocalStorage({ key: "muster-smoothing", defaultValue: 0, getInitialValueInEffect: false });
  const [log, setLog] = useLocalStorage({ key: "muster-log-scale", defaultValue: false, getInitialValueInEffect: false });
  return { weight, setWeight, log, setLog };
}

/** The controls of that preference. */
export function CurveControls({ weight, setWeight, log, setLog }: ReturnType<typeof useCurveStyle>) {
  return (
    <>
      <Group gap={8} wrap="nowrap" style={{ flex: "0 1 260px", minWidth: 200 }}>
        <Text size="sm" className="nowrap">
          Smoothing
        </Text>
        <Slider size="sm" flex={1} min={0} max={0.99} step={0.01} value={weight} onChange={setWeight} label={(v) => v.toFixed(2)} thumbLabel="Smoothing" />
        <Text size="xs" c="dimmed" w={30}>
          {weight === 0 ? "off" : weight.toFixed(2)}
        </Text>
      </Group>
      <Switch size="sm" label="Logarithmic" checked={log} onChange={(e) => setLog(e.currentTarget.checked)} />
    </>
  );
}
