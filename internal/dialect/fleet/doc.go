// Package fleet represents workers of other systems as workers of Muster. Each of them is an agent.Agent of this process with
// its own identity, key and session, so that leases, fencing, retries, logs and drains work as for any worker. Only the
// executor is different: it offers a task to the gateway and waits for its report.
//
//	server ◄── link session ── agent ── executor ── Task ◄──► gateway ◄──► foreign worker
//	                                       │
//	                                     state: workers, held tasks, reports (bbolt)
//
// # Contact
//
// The gateway calls Touch for each sign of life of a worker. After Config.SilenceTimeout without a Touch the worker's session ends
// without a goodbye, like a broken connection: the server shows the worker as unreachable, and assigns its tasks to other workers when
// their leases expire. If the worker is touched before, it reconnects with its tasks.
//
// # Restarts
//
// Workers, their tasks and final reports are on disk before they are acknowledged. After the server's process has ended, also
// by a crash, the next Fleet in the directory recovers all of them under the same ids: a worker only sees that requests failed
// for a while.
//
// # Orphans
//
// A task that is cancelled or timed out is done for the server at once, but its worker cannot be stopped and may still run it.
// Such a task is an orphan. Its worker gets no new tasks until it reports the orphan (Fleet.ReportLate) or asks for work while
// it is idle (Worker.MarkIdle).
package fleet
