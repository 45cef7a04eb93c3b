import "./ui/mantine/first";
import "@mantine/notifications/styles.layer.css";
import "./ui/base.css";
import { localStorageColorSchemeManager, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "./api/queries";
import { session } from "./api/session";
import { SignInGate } from "./app/SignIn";
import { draft } from "./pages/submit/draft";
import { router } from "./router";
import { cssVariables, theme } from "./ui/theme";

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no element #root");

session.onForget(() => {
  queryClient.clear();
  draft.drop(); // it may have secrets
});
session.follow();
void session.check();
// The page's code is loaded while the server says who is signed in.
void router.preloadRoute({ to: window.location.pathname });
createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={cssVariables} defaultColorScheme="auto" colorSchemeManager={localStorageColorSchemeManager()}>
      <Notifications position="bottom-right" limit={4} zIndex={1100} />
      <QueryClientProvider client={queryClient}>
        <SignInGate>
          <RouterProvider router={router} />
        </SignInGate>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
