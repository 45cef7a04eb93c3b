// Package webhook sends HTTP requests when jobs end or wait long.
//
//	engine ── Commit ──► job_end ──┐                                  ┌─► attempt, 4 for each host, 16 for each project, 32 in all
//	                               ├─ expand ─► delivery (pending) ───┤
//	jobs that wait ── watch ───────┘      ▲                           └─► delivered, or pending until later, or given up
//	                                      └──────── backoff ◄────────────┘
//
// The end of a job is noted in the transaction that ends it, so that no crash loses it. Everything after that is done by Run, which reads
// committed rows only: it turns ends into deliveries in one transaction and sends what is due. A delivery is sent at least once; one whose
// answer came while the server was killed is sent again, with the same webhook-id. The order is not kept.
//
// The engine does not know this package and never waits for it: both only share the store's writer, and Run gathers what it writes into few
// transactions. All queues are bounded: those in memory by the number of attempts at once, those on disk by project (store.MaxPendingDeliveries).
//
// Requests are signed as the Standard Webhooks specification 1.0.0 says, by the secret of the notification or, if it has none, by that of
// the project, which follows from the server's key. They go to public addresses only, unless the operator allows others.
package webhook
