import { useDebouncedCallback } from "@mantine/hooks";
import { useState } from "react";

/** Milliseconds that typing rests before a text is committed. */
const rest = 250;

/**
 * The text of a field whose value is kept elsewhere, such as in the URL. What is typed stays in the field, so that neither the caret nor an
 * input method loses its place, and is committed when typing rests. A value that comes from elsewhere replaces it.
 */
export function useTyped(value: string, commit: (text: string) => void): readonly [string, (text: string) => void] {
  const [field, setField] = useState({ text: value, seen: value, sent: value });
  if (value !== field.seen) setField({ ...field, seen: value, text: value === field.sent ? field.text : value });
  const send = useDebouncedCallback((text: string) => {
    setField((f) => ({ ...f, sent: text }));
    commit(text);
  }, rest);
  const type = (text: string) => {
    setField((f) => ({ ...f, text }));
    send(text);
  };
  return [field.text, type];
}
