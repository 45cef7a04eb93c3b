// What the URL's search may hold. Unknown or malformed values are dropped, so that old links keep working.
export interface SettingsSearch {
  /** The project whose secrets and notifications are shown. */
  project?: string;
}

export const validateSettings = (s: Record<string, unknown>): SettingsSearch => {
  const project = typeof s["project"] === "string" || typeof s["project"] === "number" ? String(s["project"]) : "";
  return /^[A-Za-z0-9_-]{1,64}$/.test(project) ? { project } : {};
};
