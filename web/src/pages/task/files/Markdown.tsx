import { useMemo, useState, type SyntheticEvent } from "react";
import type { Artifact } from "@/api/types";
import css from "./files.module.css";
import { render } from "./markdown";

/**
 * A Markdown file without HTML of its own and without anything from elsewhere: images are other artifacts of the
 * attempt, links open in a tab of their own.
 */
export default function Markdown({ text, name, artifacts, urlOf }: { text: string; name: string; artifacts: readonly Artifact[]; urlOf: (a: Artifact) => string }) {
  const [broken, setBroken] = useState(false);
  const html = useMemo(
    () =>
      render(text, name, (path) => {
        const a = artifacts.find((v) => v.name === path);
        return a && urlOf(a);
      }),
    [text, name, artifacts, urlOf],
  );
  const onError = (e: SyntheticEvent) => {
    if (e.target instanceof HTMLImageElement) setBroken(true);
  };
  return (
    <div className={css.markdown} onErrorCapture={onError}>
      {broken && <p className="dim">An image of this file could not be shown.</p>}
      <div dangerouslySetInnerHTML={{ __html: html }} />
    </div>
  );
}
