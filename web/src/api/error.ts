import type { components } from "./schema";

export type FieldError = components["schemas"]["FieldError"];

/** What every failed request throws. Code is the stable code of the API, or "unreachable" if no answer came. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly code: string,
    readonly status: number,
    message: string,
    readonly errors: readonly FieldError[] = [],
  ) {
    super(message);
  }

  /** Whether the same request may succeed later without a change. */
  get temporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

interface Problem {
  code?: unknown;
  detail?: unknown;
  title?: unknown;
  errors?: unknown;
}

/** Reads an error answer. An answer that is not application/problem+json (of a reverse proxy) keeps its status. */
export async function errorOf(response: Response): Promise<ApiError> {
  const type = response.headers.get("Content-Type") ?? "";
  if (type.includes("json")) {
    try {
      const p = (await response.json()) as Problem;
      const message = typeof p.detail === "string" ? p.detail : typeof p.title === "string" ? p.title : response.statusText;
      const errors = Array.isArray(p.errors) ? (p.errors as FieldError[]) : [];
      return new ApiError(typeof p.code === "string" ? p.code : "internal", response.status, message, errors);
    } catch {
      // the body broke off: the status says what is known
    }
  }
  return new ApiError("internal", response.status, `The server answered ${response.status} ${response.statusText}`.trim());
}

/** One sentence for people. */
export function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message;
  return String(error);
}
