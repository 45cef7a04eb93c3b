import { Button, Center, Loader, Stack, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Link2Off } from "lucide-react";
import { useEffect, useState } from "react";
import { messageOf } from "@/api/error";
import { session } from "@/api/session";
import { EmptyState } from "@/ui/feedback";
import { jobOf, keyOf } from "./key";

/** Signs in with the key in the fragment of a shared link (/share#KEY), which no server log sees, and shows its job. */
export default function SharePage() {
  const navigate = useNavigate();
  const [key] = useState(() => keyOf(location.hash));
  const [error, setError] = useState("");
  const [other, setOther] = useState(false);

  const open = async () => {
    try {
      const job = await jobOf(key);
      await session.signIn(key);
      await navigate({ to: "/jobs/$job", params: { job }, replace: true });
    } catch (e) {
      setError(messageOf(e));
    }
  };
  useEffect(() => {
    // The key must not stay in the address, where it is copied and seen.
    window.history.replaceState(null, "", "/share");
    void (async () => {
      await session.check();
      const me = session.get().me;
      if (!key) {
        // The page is loaded again, or mounted again because the link signed in over the session of another user.
        if (me?.job) await navigate({ to: "/jobs/$job", params: { job: String(me.job) }, replace: true });
        else setError("The link has no key. Copy the whole link, or ask for a new one.");
        return;
      }
      if (me && !me.job) setOther(true);
      else await open();
    })();
    // The link is opened once.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, []);

  if (error) {
    return (
      <Center mih="60dvh">
        <title>Shared link · Muster</title>
        <EmptyState
          icon={Link2Off}
          title="The link does not work"
          action={
            <Button component="a" href="/">
              Sign in
            </Button>
          }
        >
          {error}
        </EmptyState>
      </Center>
    );
  }
  if (other) {
    return (
      <Center mih="60dvh">
        <Stack className="card" maw={460} p="lg">
          <Text fw={600}>You are signed in as {session.get().me?.name}</Text>
          <Text size="sm">The link signs this browser in with a key that may only read one job. You can sign in with your own key later.</Text>
          <Button onClick={() => void open()}>Open the shared job</Button>
          <Button variant="default" component="a" href="/">
            Stay signed in
          </Button>
        </Stack>
      </Center>
    );
  }
  return (
    <Center mih="60dvh">
      <Loader size="sm" aria-label="Opening the shared link" />
    </Center>
  );
}
