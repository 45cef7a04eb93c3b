// Package sched decides which task runs where and when, what is retried and what fails.
// It is pure: State.Apply takes an Event and the time, State.Place assigns what can be
// assigned, and State.Flush returns the Effects: rows to commit, commands to workers and
// events to publish. It does no I/O, starts no goroutine, reads no clock and uses no
// random numbers: equal histories have equal effects.
//
// A State holds the jobs that are not final, with their groups (stages) and tasks, and
// the workers:
//
//	job ──► group ◄──► group         needs, dependents
//	          │  elements without a row of their own
//	          ▼
//	        task ◄──► worker         held
//
// Each of them is a row as it is committed, plus what a restart loses: the queue item,
// the timer, whether the row must be flushed (dirty).
//
// # The states of a task
//
//	                 needs met              placed               started
//	       waiting ────────────► queued ────────────► assigned ────────────► running
//	          │                   │ ▲ ▲                 │   │                  │   │
//	          │                   │ │ └─────────────────┘   │ cancel    cancel │   │
//	          │                   │ │  rejected, lost       └──► cancelling ◄──┘   │
//	          │                   │ └────────────────────────────────│─────────────┤ retry
//	          ▼                   ▼                                  ▼             ▼
//	skipped, failed,      cancelled, timed_out,          cancelled, succeeded,   succeeded,
//	   cancelled                failed                     failed, timed_out   failed, timed_out
//
// One table has the legal transitions (muster.TaskState.CanBecome), and one function
// makes them (State.transition). An ended task becomes queued or waiting again only when
// a user retries it.
//
// An attempt is one execution of a task on one worker, and its number is the fencing
// token: only events of the current attempt are accepted. It is current from its
// assignment until it ends or is abandoned. Events of any other attempt are a Conflict; a
// late report is kept for diagnosis (Rows.LateReports).
//
// An attempt that fails by its own fault is retried as its spec's retries allow. One that
// fails by the fleet's fault (muster.Reason.FleetFault) is retried without counting as
// such, up to Config.CrashLimit times. The backoff between two attempts doubles; its
// jitter is a hash of the attempt's id. A shutdown of the worker, an attempt that the
// worker never accepted and a preemption (Preempted, GangMember) count as neither. The
// next attempt gets the checkpoint of the last one.
//
// # Arrays
//
// A group of a million elements is one row with a cursor (Materialized): the elements
// from the cursor on that have no row of their own share one state. An element gets a row
// (is materialized) when it is first assigned, in order, or earlier when a part of the
// array is cancelled or retried. So submitting, cancelling, timing out or skipping a
// million tasks writes a handful of rows.
//
// # Workers
//
//	joined ──► active ◄──► paused, draining
//	             │  ▲            │
//	  disconnect │ │ joined,     │ drain complete
//	  or timeout ▼ │ any event   ▼
//	         unreachable ─────► gone ──► removed
//	              unreachable for an hour
//
// A worker that sent nothing for Config.HeartbeatTimeout, or that disconnected, is
// unreachable: it gets no tasks, and its running tasks continue. Each of its attempts is
// lost when the worker was last seen longer ago than that stage's disconnect.grace. A
// worker that reconnects lists its attempts: those that it no longer has are retried, and
// those that were given up meanwhile it must stop.
//
// At a worker's deadline a pause ends, and the tasks of a draining worker are preempted.
// An attempt whose stop is not confirmed within its grace is abandoned, unless the worker
// is unreachable: it may still run there. A worker may change its description at any
// time; a GPU that it quarantines gets no new tasks, and its running tasks continue.
//
// Workers have a health record, a circuit breaker for attempts that fail by the worker's
// fault:
//
//	          score over the limit             pause over, next assignment
//	healthy ───────────────────────► paused ─────────────────────────► on trial
//	   ▲                               ▲                                  │  │
//	   │                               └───────── the trial fails ────────┘  │
//	   └──────────── the trial succeeds, or outlasts the failures ───────────┘
//
// The score is a number of recent failures. It halves with every attempt that succeeds,
// and every halfLife. While it is not zero, other workers that fit are preferred. A worker
// over the limit gets no tasks for a pause that doubles each time, up to maxPause; then it
// gets one task at a time until one of them shows that the worker is healthy. So no worker
// is avoided forever, and a fleet of unhealthy workers still works. A task that failed so
// prefers other workers for a while, and does not fail for good before it failed on
// several workers.
//
// # Gangs
//
// The members of a gang are the elements of one group that start together or not at all;
// element n has rank n.
//
//	          all placed in one Place              all others are done
//	queued ───────────────────────────► running ───────────────────────► succeeded
//	   ▲                                   │ succeeded: done, waits for the others
//	   │                                   │
//	   │  the last of the others ended     │ one ended otherwise, or was rejected
//	   └───────────────────────────── broken ──────────────────────────► failed, timed_out,
//	      restart: as retries allow                end: no retry           the others cancelled
//
// They are queued as one item, and placed when all of them fit at the same time: two gangs
// cannot deadlock, because a waiting one holds nothing. After that each member is a task
// with its own worker, lease and reports. A member whose attempt succeeds is done: its
// resources are released, and its row is that of a running task without a grant. When the
// last one is done, all have succeeded.
//
// When a member ends otherwise, the gang is broken. The decision about that member holds
// for all: either it is queued again, which counts once in each row, or it has ended. In
// the same commit the members that were done are queued or cancelled, too, and the others
// are stopped with the reason gang_member, and follow when their attempts have ended. So
// the rows tell whether a broken gang restarts: yes if a member is queued, no if one has
// ended. The gang is placed again when the last member is queued and all backoffs are over.
//
// When a machine fails, its members disappear and the others fail because of that, long
// before the lease of the machine's worker expires. So a member that fails while another
// member's worker is unreachable counts as a failure by the fleet's fault. If a worker of
// a gang is drained or shuts down, the whole gang is preempted, so that all members save
// at the same time.
//
// # The queue
//
// Queued tasks are in buckets of equal priority, project and need (package queue). Place
// goes from the highest priority down; at each it always takes the project with the least
// dominant share, and of that its oldest task. For a task that has been overtaken for
// longer than Config.StarvationTimeout one worker is reserved, and for a gang as many as
// it needs. Package placement chooses the best worker.
//
// A decision takes a few microseconds. The time grows with the logarithm of the number of
// workers and queued items, and for each Place with the number of different needs that
// cannot be placed.
//
// # What is promised
//
//   - A task has at most one accepted result, and attempt numbers only grow.
//   - A worker never gets more than it offers. (One that reconnects with less may hold
//     more until its tasks end.)
//   - Nothing is queued before the stages that it needs have succeeded.
//   - A refused event changes nothing.
//   - A cancelled task ends within kill.grace and half a minute, whatever its worker does.
//   - After Place, no queued task fits a worker, except one that avoids this worker for a
//     while, and where the worker is reserved for another task.
//   - No starvation: if every running task ends, a task that some worker could run starts
//     eventually, however many others of equal or lower priority arrive.
//   - No member of a gang is assigned unless all are, in the same commit, and none has
//     succeeded unless all have. While one is queued or has ended, every other one is
//     being stopped. A gang ends or restarts as a whole.
//   - A State that is rebuilt from the committed rows has the same Snapshot as the one
//     that made them.
//
// The last one excludes what a restart loses: whether a worker is connected, constrained
// or received Drained; when it was last seen (after a Rebuild: now), and
// so whether it is unreachable (in a Snapshot every worker that is not gone is); its load
// and its health; whether an attempt was accepted; rejections in a row and avoided workers;
// preemptions, which follow from the worker's deadline; when a stopped attempt is abandoned
// (the wait restarts); observed run times; blocked buckets and reservations; progress
// reported within the last saveProgressEvery; transition rates; and the failures of a job
// beyond what its rows count.
//
// # What is not promised
//
//   - A task runs at least once, not exactly once: an abandoned attempt may still run on a
//     worker without a connection, until the worker reconnects or its lease ends.
//   - A higher priority always goes first: it may delay a lower one forever, and use the
//     worker that is reserved for it.
//   - Running tasks are not preempted for more important ones.
package sched
