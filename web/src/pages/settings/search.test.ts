import { expect, it } from "vitest";
import { validateSettings } from "./search";

it("drops what the address cannot mean", () => {
  expect([{ project: "vision" }, { project: 7 }, { project: "a b" }, { project: "" }, {}].map(validateSettings)).toEqual([{ project: "vision" }, { project: "7" }, {}, {}, {}]);
});
