import { notifications } from "@mantine/notifications";
import { messageOf } from "@/api/error";

/** A short message at the edge of the page. */
export const toast = {
  ok: (message: string) => notifications.show({ message, color: "teal", autoClose: 4_000 }),
  fail: (title: string, error: unknown) => notifications.show({ title, message: messageOf(error), color: "red", autoClose: 10_000 }),
};

/** Runs an action of the user, and says how it ended. Returns whether it succeeded. */
export async function act(title: string, action: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await action();
  } catch (e) {
    toast.fail(`${title} failed`, e);
    return false;
  }
  if (done) toast.ok(done);
  return true;
}
