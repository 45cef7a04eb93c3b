import { expect, it } from "vitest";
import { retried } from "./types";

it("attempts are more than the tasks that had any only if a task was tried again", () => {
  expect(retried({ succeeded: 3, running: 1 }, 3)).toBe(false);
  expect(retried({ succeeded: 3, running: 1 }, 4)).toBe(true);
  expect(retried({ failed: 1, skipped: 5 }, 1)).toBe(false);
  expect(retried({ failed: 1, skipped: 5 }, 3)).toBe(true);
});
