import { Anchor, Button, Center, Divider, Loader, Modal, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { Fragment, useEffect, useRef, useState, type ReactNode } from "react";
import { messageOf } from "@/api/error";
import { session, useSession } from "@/api/session";
import { ErrorState } from "@/ui/feedback";
import { toast } from "@/ui/toast";
import { Logo } from "./Logo";
import { signOut } from "./signOut";

/** Shows the sign-in page until somebody is signed in; later, when the session has expired, a dialog over the page. */
export function SignInGate({ children }: { children: ReactNode }) {
  const { status, me, expired, generation, error } = useSession();
  // A shared link brings its own key: its page signs in automatically.
  const shared = location.pathname === "/share";
  if (status === "unknown" && !shared) {
    return (
      <Center h="100dvh">
        {error ? (
          <Stack maw={440} px="md">
            <ErrorState error={error} retry={() => void session.check()} title="The server does not answer" />
          </Stack>
        ) : (
          <Loader size="sm" aria-label="Loading" />
        )}
      </Center>
    );
  }
  if (status === "out" && !shared) return <SignInPage />;
  return (
    <>
      {/* Nothing that a page holds of one user is shown to the next. */}
      <Fragment key={generation}>{children}</Fragment>
      {/* A toast is above it: see main.tsx. */}
      <Modal zIndex={1000} opened={expired} onClose={() => void signOut()} title={me?.job ? "This link is no longer valid" : "Sign in again"} closeOnClickOutside={false} closeOnEscape={false} closeButtonProps={{ "aria-label": "Sign out" }}>
        <Text size="sm" c="dimmed" mb="md">
          {me?.job ? `The link to job ${me.job} has expired or was revoked. Ask for a new one, or sign in with an API key.` : "The session has ended. The page stays as it is, and what you did last is sent when you are signed in. Another user begins with an empty page."}
        </Text>
        <SignInForm />
      </Modal>
    </>
  );
}

function SignInPage() {
  return (
    <Center mih="100dvh" p="md" component="main">
      <title>Sign in · Muster</title>
      <Stack className="card" w="100%" maw={420} p="xl" gap="md">
        <Logo size={40} />
        <div>
          <Title order={1}>Sign in to Muster</Title>
          <Text c="dimmed" size="sm" mt={4}>
            Use your account, if the server offers it, or an API key.
          </Text>
        </div>
        <SignInForm />
        <Text size="xs" c="dimmed">
          <code>muster up</code> and <code>muster server</code> print the first admin key when they start for the first time. An admin makes more with <code>muster keys create</code>. The API is described at{" "}
          <Anchor href="/api/docs" size="xs" underline="always" fw={600}>
            /api/docs
          </Anchor>
          .
        </Text>
      </Stack>
    </Center>
  );
}

/** Why a sign-in with the provider failed, as the server says in ?sign-in=. */
const failures: Record<string, string> = {
  expired: "The sign-in took too long or was started in another browser. Start again.",
  denied: "The sign-in was cancelled, or the provider refused it.",
  "no-role": "You have no access to this server. Ask its administrator for a role.",
  unavailable: "The sign-in does not work at the moment. Try again, or ask the administrator: the server's log has the reason.",
};

/** A button for the server's OpenID Connect provider, if it has one. */
function ProviderSignIn() {
  const [provider, setProvider] = useState("");
  const failure = new URLSearchParams(location.search).get("sign-in");
  useEffect(() => {
    let left = false;
    session.provider().then(
      (name) => !left && setProvider(name),
      () => undefined, // the form says it if the server does not answer
    );
    return () => {
      left = true;
    };
  }, []);
  return (
    <>
      {failure !== null && (
        <Text size="sm" c="red" role="alert">
          {failures[failure] ?? failures.unavailable}
        </Text>
      )}
      {provider !== "" && (
        <>
          <Button component="a" href={`/api/v1/oidc/login?next=${encodeURIComponent(location.pathname === "/" ? "/" : location.pathname + location.search)}`} variant="filled">
            Sign in with {provider}
          </Button>
          <Divider label="or with an API key" />
        </>
      )}
    </>
  );
}

function SignInForm() {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const submit = async () => {
    setBusy(true);
    setError("");
    try {
      const { generation } = session.get();
      const me = await session.signIn(token);
      if (session.get().generation !== generation) toast.ok(`Signed in as ${me.name}. What the former user had not sent yet was dropped.`);
    } catch (e) {
      setError(messageOf(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        void submit();
      }}
    >
      <Stack>
        <ProviderSignIn />
        <PasswordInput ref={input} label="API key" name="token" autoComplete="current-password" placeholder="mst_…" value={token} onChange={(e) => setToken(e.currentTarget.value)} error={error} data-autofocus required withAsterisk={false} />
        <Button type="submit" loading={busy} disabled={token.trim() === ""}>
          Sign in
        </Button>
      </Stack>
    </form>
  );
}
