// Package webhook sends HTTP requests when jobs end or wait long.
//
//	engine ── Commit ──► job_end ──┐                                  ┌─► attempt, 4 for each host, 16 for each project, 32 in all
//	                               ├─ expand ─► delivery (pending) ───┤
//	jobs that wait ── watch ───────┘      ▲                           └─► delivered, or pending until later, or given up
//	                                      └──────── backoff ◄────────────┘
//
// The transaction that ends a job records the end, so that no crash loses it. Run reads committed rows only: it converts ends to deliveries
// in one transaction and sends those that are due. A delivery is sent at least once: if the server is killed before it records the
// response, it sends the delivery again, with the same webhook-id. Deliveries are not ordered.
//
// The engine does not use this package and never waits for it: both only share the store's writer, and Run batches its writes into few
// transactions. All queues are limited: in memory by the number of simultaneous attempts, on disk by project (store.MaxPendingDeliveries).
//
// Requests are signed according to the Standard Webhooks specification 1.0.0, with the secret of the notification or, if it has none, with that of
// the project, which is derived from the server's key. They go to public addresses only, unless the operator allows others.
package webhook
