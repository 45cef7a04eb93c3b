import type { Me } from "@/api/session";

/** What `GET /api/v1/whoami` answers to an administrator, for tests. */
export const admin: Me = {
  key: "k-1",
  name: "admin",
  role: "admin",
  version: "test",
  permissions: ["read jobs", "submit jobs", "cancel, retry or edit jobs", "see workers", "steer workers", "create keys", "manage keys", "join workers", "manage notifications", "manage secrets", "execute commands in tasks"],
};
