// Package agent implements the worker: it joins a server, keeps a session open, runs assigned attempts through executors, and reports
// their results.
//
//	link session ── Assign ──► attemptTable ──► executor (package run) ──┐
//	     ▲                       │  ▲               │                    │ Reporter, Report
//	     │ nextFrame             │  └───────────────┼────────────────────┘
//	     │                       │                  ▼
//	     │                       │       supervisor: the processes, across restarts of the worker
//	     └── Accepted, Started, Progress, Logs, Saved, Finished, Renew
//	                             │
//	                             ├──► ReportStore: reports that are not acknowledged
//	                             └──► local logs, removed once the server has them
//
// # What is sent, and when
//
// The attemptTable holds every attempt of this worker, and what the server does not know of each. There is no queue of messages: when the
// session is ready for a frame, the table makes it from the current state. So a task that ends before its start was reported is one
// Finished message and nothing else, an outdated progress is not sent, and after a reconnect the same question, "what does the server not
// know?", has the complete answer. Deadlines are checked when a frame is made, so a worker that was stopped and continued sends nothing
// outdated.
//
// # Leases
//
// An unreachable worker kills an attempt when the attempt's disconnect grace has passed, and does not report it: by then the server has
// given it up, and another worker may run the task. The time counts from the last ping that the server answered, which is never later than
// the server's own count begins, by a clock that no process can set and that includes the time that the machine sleeps. It also counts for
// attempts that are received later: a worker that was stopped rejects an assignment whose lease has ended. The check precedes every frame
// in either direction. The supervisor receives the time of every contact and checks leases too: it ends attempts whose lease ends while
// the worker is not running or stopped. The next process of the worker continues with the same count.
//
// # Reports
//
// A report that is not acknowledged within saveDelay, or that is made while the server is unreachable, is written to the ReportStore, which
// survives the process, and is sent in every session until FinishedAck. A crash before that is like a crash just before the task ended. The
// attempt's log stays until the server has all of it and the report.
//
// # Restarts
//
// A task's process belongs to the supervisor, not to this process. When the worker is killed or detaches, the next process on the same data
// dir asks the supervisor for its attempts, recovers each with its resources, log and lease, and lists it in its hello. An attempt that has
// no process yet is lost with a killed worker; a detaching worker hands it back.
//
// # What is not promised
//
// Tasks do not survive a restart of the machine or of the supervisor: they end, and the server starts them elsewhere.
package agent
