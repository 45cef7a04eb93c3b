/** An example of a job that runs unchanged. */
export interface Example {
  readonly name: string;
  /** Its first comment line. */
  readonly about: string;
  readonly text: string;
}

const sources: Record<string, string> = import.meta.glob(["../../../../examples/basics/*.yaml", "../../../../examples/ai/digits.yaml"], { query: "?raw", import: "default", eager: true });

export const examples: readonly Example[] = Object.entries(sources).map(([path, text]) => {
  const name = /([^/]+)\.yaml$/.exec(path)?.[1] ?? path;
  return { name: path.includes("/ai/") ? `ai-${name}` : name, about: text.split("\n")[0]?.replace(/^#\s*/, "") ?? "", text };
});

export const hello = examples.find((e) => e.name === "hello")?.text ?? "";
