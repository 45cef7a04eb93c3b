import { Center, Loader } from "@mantine/core";
import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { Compass } from "lucide-react";
import { messageOf } from "@/api/error";
import { EmptyState, ErrorState } from "@/ui/feedback";
import { LinkButton } from "@/ui/links";
import { PageHeader } from "@/ui/PageHeader";

export function PagePending() {
  return (
    <Center h="40dvh" role="status" aria-label="Loading the page">
      <Loader size="sm" />
    </Center>
  );
}

/** What a page shows when it failed; the rest of the dashboard keeps working. */
export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const stale = /dynamically imported module|module script/i.test(messageOf(error));
  return (
    <>
      <PageHeader title="This page failed" />
      <ErrorState
        title={stale ? "The dashboard was updated" : "This page has a fault"}
        error={stale ? new Error("This tab has an older version of the dashboard than the server. Load it again.") : error}
        retry={() => {
          if (stale) location.reload();
          else {
            reset();
            void router.invalidate();
          }
        }}
      />
    </>
  );
}

export function NotFound() {
  return (
    <>
      <PageHeader title="Not found" />
      <EmptyState
        icon={Compass}
        title="There is no page at this address"
        action={
          <LinkButton to="/">Open the overview</LinkButton>
        }
      >
        The link may be incomplete, or made by another version of Muster.
      </EmptyState>
    </>
  );
}
