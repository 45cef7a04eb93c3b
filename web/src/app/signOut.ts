import { session } from "@/api/session";
import { act } from "@/ui/toast";

/** Signs out, and says so if that fails. */
export const signOut = () => act("Sign out", () => session.signOut());
