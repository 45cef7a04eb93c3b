import { MantineProvider } from "@mantine/core";
import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import Editor from "./Editor";

afterEach(cleanup);

it("leaves dropped files to the page, which uploads them", () => {
  const onChange = vi.fn();
  const onDrop = vi.fn();
  render(
    <MantineProvider env="test">
      <div onDrop={onDrop}>
        <Editor value="name: mine" onChange={onChange} schema={undefined} errors={[]} onSubmit={() => undefined} />
      </div>
    </MantineProvider>,
  );
  const read = vi.spyOn(FileReader.prototype, "readAsText");
  const event = new Event("drop", { bubbles: true, cancelable: true });
  Object.assign(event, { dataTransfer: { types: ["Files"], files: [new File(["text of the file"], "a.txt")] } });
  screen.getByRole("textbox").dispatchEvent(event);
  expect(onDrop).toHaveBeenCalledOnce();
  expect(event.defaultPrevented).toBe(true);
  expect(read).not.toHaveBeenCalled();
  expect(onChange).not.toHaveBeenCalled();
});
