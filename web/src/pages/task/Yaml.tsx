import { CopyButton } from "@/ui/CopyLine";
import { toYAML } from "@/ui/yaml";

/** A value as YAML, or the button that copies it. */
export default function Yaml({ value, button = false }: { value: unknown; button?: boolean }) {
  const text = toYAML(value);
  if (button) return <CopyButton text={text} label="Copy as YAML" />;
  return (
    // It scrolls, so the keyboard must reach it.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <pre tabIndex={0} className="mono" style={{ margin: 0, maxHeight: "70dvh", overflow: "auto", fontSize: 12.5, lineHeight: 1.5, whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
      {text}
    </pre>
  );
}
