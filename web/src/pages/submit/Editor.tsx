import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, defaultHighlightStyle, foldGutter, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import type { FieldError } from "@/api/error";
import { complete, hover, type Schema } from "./complete";

const darkStyle = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "#7ee0ee" },
  { tag: [tags.string, tags.content], color: "#c3d1de" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "#f0a35e" },
  { tag: tags.comment, color: "#98a2ad", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.meta], color: "#98a2ad" },
]);

const look = EditorView.theme({
  "&": { fontSize: "13px", height: "100%", backgroundColor: "var(--card)", color: "var(--mantine-color-text)" },
  ".cm-content": { fontFamily: "var(--mantine-font-family-monospace)", caretColor: "var(--mantine-color-text)" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--mantine-color-dimmed)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--mantine-color-dimmed) 8%, transparent)" },
  ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
  "&.cm-focused": { outline: "2px solid var(--mantine-primary-color-filled)", outlineOffset: "-1px" },
  ".cm-tooltip": { backgroundColor: "var(--card)", border: "1px solid var(--line)", color: "var(--mantine-color-text)", maxWidth: "420px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--mantine-primary-color-filled)", color: "white" },
  ".cm-hover": { padding: "6px 10px", fontSize: "13px" },
  ".cm-panels": { backgroundColor: "var(--card)", color: "var(--mantine-color-text)" },
});

export interface EditorProps {
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly schema: Schema | undefined;
  readonly errors: readonly FieldError[];
  /** Ctrl-Enter. */
  readonly onSubmit: () => void;
}

/** The range of an error: the rest of its line from its column on. */
function place(state: EditorState, e: FieldError): Diagnostic {
  const line = state.doc.line(Math.min(Math.max(1, e.line ?? 1), state.doc.lines));
  const from = Math.min(line.from + Math.max(0, (e.column ?? 1) - 1), line.to);
  return { from, to: Math.max(from, line.to), severity: "error", message: `${e.path ? `${e.path}: ` : ""}${e.message}${e.hint ? ` (${e.hint})` : ""}` };
}

/** A YAML editor that proposes what the schema allows and marks the errors that it is given. */
export default function Editor({ value, onChange, schema, errors, onSubmit }: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const scheme = useComputedColorScheme("light");
  const style = useRef(new Compartment());
  const latest = useRef({ onChange, onSubmit, schema });
  useEffect(() => {
    latest.current = { onChange, onSubmit, schema };
  });

  useEffect(() => {
    if (!host.current) return;
    const propose = (context: CompletionContext): CompletionResult | null => {
      const { schema: root } = latest.current;
      const word = context.matchBefore(/[\w.-]+/);
      if (!root || (!context.explicit && !word)) return null;
      const found = complete(root, context.state.doc.toString(), context.pos);
      if (!found) return null;
      return {
        from: found.from,
        validFor: /^[\w.-]*$/,
        options: found.options.map((o) => ({ label: o.label, type: o.kind === "property" ? "property" : "enum", ...(o.info && { info: o.info }), ...(o.kind === "property" && { apply: `${o.label}: ` }) })),
      };
    };
    const about = hoverTooltip((v, pos) => {
      const root = latest.current.schema;
      const found = root && hover(root, v.state.doc.toString(), pos);
      if (!found) return null;
      return {
        pos: found.from,
        end: found.to,
        create: () => {
          const dom = document.createElement("div");
          dom.className = "cm-hover";
          dom.textContent = `${found.path}: ${found.text}`;
          return { dom };
        },
      };
    });
    const editor = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          lineNumbers(),
          foldGutter(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          closeBrackets(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          lintGutter(),
          yaml(),
          indentUnit.of("  "),
          EditorState.tabSize.of(2),
          EditorView.lineWrapping,
          autocompletion({ override: [propose], activateOnTyping: true }),
          about,
          // The page takes dropped files; the editor would insert their text.
          EditorView.domEventHandlers({ drop: (e) => e.dataTransfer?.types.includes("Files") ?? false }),
          keymap.of([
            {
              key: "Mod-Enter",
              run: () => {
                latest.current.onSubmit();
                return true;
              },
            },
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...searchKeymap,
            ...historyKeymap,
            ...completionKeymap,
            indentWithTab,
          ]),
          EditorView.contentAttributes.of({ "aria-label": "Job spec in YAML. Escape, then Tab leaves the editor." }),
          look,
          style.current.of([]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.onChange(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => {
      editor.destroy();
      view.current = null;
    };
    // The editor is created once; later values are set below.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);

  useEffect(() => {
    view.current?.dispatch({ effects: style.current.reconfigure([syntaxHighlighting(scheme === "dark" ? darkStyle : defaultHighlightStyle), EditorView.darkTheme.of(scheme === "dark")]) });
  }, [scheme]);

  useEffect(() => {
    const editor = view.current;
    if (editor && editor.state.doc.toString() !== value) editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => {
    const editor = view.current;
    if (editor) editor.dispatch(setDiagnostics(editor.state, errors.map((e) => place(editor.state, e))));
  }, [errors]);

  return <div ref={host} style={{ height: "100%", minHeight: 0, overflow: "hidden" }} data-testid="editor" />;
}
