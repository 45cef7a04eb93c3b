import { ActionIcon, Tooltip } from "@mantine/core";
import { Check, Copy } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { copyText } from "./copy";
import css from "./CopyLine.module.css";

/** Milliseconds for which a button says how copying ended. */
const shownFor = 1_500;

/** A button that copies text. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [ended, setEnded] = useState<"Copied" | "The browser does not allow copying here">();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    setEnded((await copyText(text)) ? "Copied" : "The browser does not allow copying here");
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setEnded(undefined), shownFor);
  };
  return (
    <Tooltip label={ended ?? label}>
      <ActionIcon onClick={() => void copy()} aria-label={ended ?? label}>
        {ended === "Copied" ? <Check size={16} color="var(--state-succeeded)" aria-hidden /> : <Copy size={16} aria-hidden />}
      </ActionIcon>
    </Tooltip>
  );
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
