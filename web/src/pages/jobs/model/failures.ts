import type { Task } from "@/api/types";
import { words } from "@/ui/format";

/** Tasks that failed for the same reason. */
export interface Failure {
  readonly key: string;
  readonly reason: string;
  readonly message: string;
  readonly tasks: readonly string[];
}

/** Groups tasks by reason and message, the most frequent first. Numbers and hashes in messages do not make a difference. */
export function group(tasks: readonly Task[]): Failure[] {
  const found = new Map<string, { reason: string; message: string; tasks: string[] }>();
  for (const t of tasks) {
    const reason = reasonOf(t);
    const key = `${reason}|${(t.message ?? "").replace(/\b[0-9a-f]{8,}\b|\d+(\.\d+)*/gi, "#")}`;
    const f = found.get(key);
    if (f) f.tasks.push(t.id);
    else found.set(key, { reason, message: messageOf(t, reason), tasks: [t.id] });
  }
  return [...found].map(([key, f]) => ({ key, ...f })).sort((a, b) => b.tasks.length - a.tasks.length);
}

/** The message, if it says more than the reason. */
export function messageOf(t: Task, reason = reasonOf(t)): string {
  return t.message && t.message.toLowerCase() !== reason.toLowerCase() ? t.message : "";
}

export function reasonOf(t: Task): string {
  if (t.reason === "exit_code" && t.exit_code !== undefined) return `exit code ${t.exit_code}`;
  return words(t.reason ?? t.state);
}
