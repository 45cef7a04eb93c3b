// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.
export interface SubmitSearch {
  /** Begins with the example of this name. */
  example?: string;
  /** Begins with the spec of this job. */
  from?: string;
}
export const validateSubmit = (s: Record<string, unknown>): SubmitSearch => ({
  ...(typeof s["example"] === "string" && { example: s["example"] }),
  ...((typeof s["from"] === "string" || typeof s["from"] === "number") && { from: String(s["from"]) }),
});
