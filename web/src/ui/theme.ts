import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

const muster: MantineColorsTuple = ["#e6f7fa", "#cfeaf0", "#9fd4df", "#6bbdce", "#43aabf", "#2a9eb6", "#1691ab", "#0b7285", "#085d6e", "#044856"];
const dark: MantineColorsTuple = ["#c9d1d9", "#b1bac4", "#8b949e", "#6e7681", "#3b434d", "#2c343d", "#20272f", "#171d24", "#11161c", "#0b0f14"];

/** System fonts only: the dashboard loads nothing from elsewhere. */
export const theme = createTheme({
  primaryColor: "muster",
  primaryShade: 7,
  colors: { muster, dark },
  autoContrast: true,
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Ubuntu, Cantarell, "Helvetica Neue", Arial, sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace',
  fontSizes: { md: "0.9375rem" },
  defaultRadius: "md",
  cursorType: "pointer",
  focusRing: "auto",
  respectReducedMotion: true,
  headings: { fontWeight: "600", sizes: { h1: { fontSize: "1.375rem", lineHeight: "1.3" }, h2: { fontSize: "1.0625rem", lineHeight: "1.35" }, h3: { fontSize: "0.9375rem", lineHeight: "1.4" } } },
  components: {
    Tooltip: { defaultProps: { withArrow: true, openDelay: 300, multiline: true, maw: 360 } },
    Modal: { defaultProps: { centered: true, closeButtonProps: { "aria-label": "Close" } } },
    Button: { defaultProps: { size: "sm" } },
    ActionIcon: { defaultProps: { variant: "subtle", color: "gray" } },
  },
});

/** Colours with a meaning. Each is at least 4.5:1 on the card's background of its scheme. */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-body": "#f6f8fa",
    "--mantine-color-dimmed": "#57606a",
    "--card": "#ffffff",
    "--line": "#d8dee4",
    "--state-waiting": "#59636e",
    "--state-queued": "#0860ca",
    "--state-assigned": "#0c6780",
    "--state-running": "#0b7285",
    "--state-cancelling": "#8a5200",
    "--state-succeeded": "#177036",
    "--state-failed": "#bd1b27",
    "--state-timed_out": "#a84300",
    "--state-cancelled": "#4b535c",
    "--state-skipped": "#59636e",
    "--chart-1": "#0b7285",
    "--chart-2": "#8250df",
    "--chart-3": "#bf5600",
    "--chart-4": "#1a7f37",
    "--chart-5": "#cf222e",
    "--chart-6": "#0969da",
    "--chart-7": "#bf3989",
    "--chart-8": "#6e7781",
  },
  dark: {
    "--mantine-color-body": "#0d1117",
    "--mantine-color-dimmed": "#98a2ad",
    "--card": "#161b22",
    "--line": "#2d343d",
    "--state-waiting": "#98a2ad",
    "--state-queued": "#6cb2ff",
    "--state-assigned": "#56c4d8",
    "--state-running": "#3fc1d6",
    "--state-cancelling": "#e3a13a",
    "--state-succeeded": "#4cc366",
    "--state-failed": "#ff7b72",
    "--state-timed_out": "#f0883e",
    "--state-cancelled": "#9aa4af",
    "--state-skipped": "#8b949e",
    "--chart-1": "#3fc1d6",
    "--chart-2": "#b392f0",
    "--chart-3": "#f0a35e",
    "--chart-4": "#4cc366",
    "--chart-5": "#ff7b72",
    "--chart-6": "#6cb2ff",
    "--chart-7": "#f47fc0",
    "--chart-8": "#98a2ad",
  },
});
