import { ActionIcon, Tooltip } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { Check, Copy } from "lucide-react";
import css from "./CopyLine.module.css";

/** A button that copies text. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const clipboard = useClipboard({ timeout: 1500 });
  const copy = () => {
    if (window.isSecureContext) clipboard.copy(text);
    else if (copyBySelection(text)) clipboard.copy(text);
  };
  return (
    <Tooltip label={clipboard.copied ? "Copied" : label}>
      <ActionIcon onClick={copy} aria-label={clipboard.copied ? "Copied" : label}>
        {clipboard.copied ? <Check size={16} color="var(--state-succeeded)" aria-hidden /> : <Copy size={16} aria-hidden />}
      </ActionIcon>
    </Tooltip>
  );
}

// Plain HTTP to another machine has no clipboard API.
function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- there is nothing else without TLS
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** A line to paste into a terminal. */
export function CopyLine({ text, label = "Copy the command", prompt = true }: { text: string; label?: string; prompt?: boolean }) {
  return (
    <div className={css.line}>
      {/* It scrolls, so the keyboard must reach it. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre className={css.text} tabIndex={0} data-prompt={prompt || undefined}>
        {text}
      </pre>
      <CopyButton text={text} label={label} />
    </div>
  );
}
