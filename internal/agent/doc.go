// Package agent is the worker: it joins a server, connects to it again and
// again, runs what it is given through executors, and reports what became of
// it.
//
//	link session ── Assign ──► roster ──► executor (package run) ──┐
//	     ▲                       │  ▲         │                    │ Sink, Report
//	     │ Take                  │  └─────────┼────────────────────┘
//	     │                       │            ▼
//	     │                       │       supervisor: the processes, over this worker's lives
//	     └── Accepted, Started, Progress, Logs, Saved, Finished, Renew
//	                             │
//	                             ├──► keep: reports that wait for their acknowledgement
//	                             └──► local logs, removed once the server has them
//
// # What is said, and when
//
// The roster holds every attempt of this worker, and what the server has not been
// told of each. There is no queue of messages: when the session is ready for a
// frame it takes what is to be said at that moment. So a task that ends before
// its start was told is one Finished and nothing else, a progress that was
// overtaken is not sent, and after a reconnect the same question, "what does the
// server not know?", has the whole answer. It is also why nothing old is said
// after a freeze: the deadlines are checked when the frame is made.
//
// # Leases
//
// A worker that is away kills its own copy of an attempt when the attempt's
// disconnect grace has passed, and says nothing about it any more: by then the
// server has given the attempt up, and another worker may run the task. The time
// is counted from the moment at which the last ping left that the server has answered, which is
// never later than the server's own count begins, and by a clock that nobody can set and
// that goes on while the machine sleeps. It counts for attempts that are received later, too: a worker that stood still
// rejects what the server assigned meanwhile if that lease has ended. Every frame, in either direction, is preceded by that
// check, so that a worker that was stopped and goes on does not report as if
// nothing had been. The supervisor is told of every contact and counts, too: it ends what
// outlives its lease while there is no worker, or a stopped one. The next life of the
// worker goes on with the count of the one before.
//
// # Reports
//
// A report that was not acknowledged within saveDelay, or that ends while
// the worker is away, is written to the keep, which survives the process, and is
// repeated in every session until FinishedAck. A crash inside that window is the
// same, for everybody, as a crash just before the task ended. The attempt's log
// stays until the server has all of it and the report.
//
// # Lives
//
// A task's process belongs to the supervisor, not to this process. When the worker is
// killed, or leaves its tasks to be upgraded, the next one on the same data dir asks what
// is held, takes up each attempt where it was, with its place, its log and its lease, and
// says in its hello that it has it. An attempt that was not started yet has no
// process: when a worker is killed it is lost with it; a worker that leaves hands it
// back.
//
// # What is not promised
//
// Tasks do not survive a restart of the machine, nor that of the supervisor's own
// process: they are ended then, and the server starts them elsewhere.
package agent
