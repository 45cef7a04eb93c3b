import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "./error";

export const queryClient = new QueryClient({
  queryCache: new QueryCache(),
  mutationCache: new MutationCache(),
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      gcTime: 5 * 60_000,
      retry: (failures, error) => error instanceof ApiError && error.temporary && failures < 3,
      retryDelay: (failures) => Math.min(8_000, 500 * 2 ** failures) * (0.5 + Math.random() / 2),
    },
    mutations: { retry: false },
  },
});
