/** An Idempotency-Key that no other request has: two requests with one key make one job. Without TLS there is no crypto.randomUUID. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
