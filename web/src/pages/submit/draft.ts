const key = "muster-submit-draft";

/** The spec that was being written: it outlives the page and an expired session. */
export const draft = {
  load(): string | undefined {
    return localStorage.getItem(key) ?? undefined;
  },
  save(text: string) {
    try {
      localStorage.setItem(key, text);
    } catch {
      // A full or forbidden storage costs the draft only.
    }
  },
  drop() {
    localStorage.removeItem(key);
  },
};
