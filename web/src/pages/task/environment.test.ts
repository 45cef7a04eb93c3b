import { expect, it } from "vitest";
import { ApiError } from "@/api/error";
import { unknownWorker } from "./Environment";

it("says that a worker has been removed only if the server does not know it", () => {
  expect(unknownWorker(new ApiError("not_found", 404, "there is no worker w-1"))).toBe("it has been removed");
  expect(unknownWorker(new ApiError("unreachable", 0, "The server cannot be reached"))).toBe("it could not be looked up: The server cannot be reached");
});
