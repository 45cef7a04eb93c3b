import { errorOf } from "@/api/error";
import type { Me } from "@/api/session";

/** The key in a fragment; "" if there is none. */
export function keyOf(hash: string): string {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    return "";
  }
}

/** The job of the key of a link. Any other key is refused before it signs in: a link must not make a browser work for another's account. */
export async function jobOf(key: string): Promise<string> {
  const response = await fetch("/api/v1/whoami", { headers: { Accept: "application/json", Authorization: `Bearer ${key}` }, credentials: "omit" });
  if (!response.ok) throw await errorOf(response);
  const { job } = (await response.json()) as Me;
  if (!job) throw new Error("The key of this link is not for one job. Do not sign in with another's key: ask for a link to the job.");
  return String(job);
}
