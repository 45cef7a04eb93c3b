// Package sched decides: which task runs where and when, what is tried again,
// what is given up. It is pure. State.Apply takes an event and the time, State.Place
// assigns what can be assigned, and State.Take gives back what follows: rows to
// commit, words to workers, events to publish. It does no I/O, starts no
// goroutine, reads no clock and rolls no dice: equal histories have equal effects.
// What a State remembers, package model says.
//
// # The life of a task
//
//	                 needs met              placed               started
//	       waiting ────────────► queued ────────────► assigned ────────────► running
//	          │                   │ ▲ ▲                 │   │                  │   │
//	          │                   │ │ └─────────────────┘   │ cancel    cancel │   │
//	          │                   │ │  rejected, lost       └──► cancelling ◄──┘   │
//	          │                   │ └────────────────────────────────│─────────────┤ another try
//	          ▼                   ▼                                  ▼             ▼
//	skipped, failed,      cancelled, timed_out,          cancelled, succeeded,   succeeded,
//	   cancelled                failed                     failed, timed_out   failed, timed_out
//
// One table says which moves are legal (muster.TaskState.CanBecome), and one
// function makes them (State.move). What has ended goes back to queued or
// waiting only when a user asks for a retry.
//
// An attempt is a task's execution on one worker, and its number is the fence:
// only the current attempt's word counts, and it is current from its assignment
// until it ends or is given up. Everything else is a Conflict; a late report is
// kept for diagnosis (Rows.Late).
//
// An attempt that fails by its own fault is tried again as its spec's retries
// say. One that fails by the fleet's fault (muster.Reason.FleetFault) is tried again
// without counting there, up to Config.CrashLimit times. Between two attempts
// lies a pause that doubles; what spreads it is a hash of the attempt's id. A
// worker that shuts down, and one that never accepted the task, cost it nothing, nor
// does it to have made room (Preempted, GangMember). What an attempt saved of its
// checkpoint folder goes with the next one.
//
// # Arrays
//
// A group (a stage) of a million elements is one row with a cursor: the elements
// from Next on that have no row of their own are its rest, all in one state.
// An element gets a row when it is first assigned, in order, or when it is
// singled out before (a part of the array is cancelled or retried). So to
// submit, cancel, time out or skip a million tasks writes a handful of rows.
//
// # Workers
//
//	joined ──► active ◄──► paused, draining
//	             │  ▲            │
//	 connection lost │ joined,   │ emptied: told to leave
//	   or silent ▼  │ heard      ▼
//	         unreachable ─────► gone ──► removed
//	                    away for an hour
//
// A worker that was not heard for Config.Silent, or whose connection ended, is
// unreachable: it is given nothing, and its running tasks go on. Each of its
// attempts is given up when the worker was last heard longer ago than that
// stage's disconnect.grace. A worker that comes back says what it holds: what it lost
// is tried again, what was given up meanwhile it must stop.
//
// At a worker's deadline a pause ends, and what a draining worker still holds is told to
// make room. What does not confirm within its grace is given up, but not while the
// worker is away: it may run there still. A worker may describe itself anew at any
// time; a GPU that it quarantines is given to nobody, and what runs on it goes on.
//
// A worker on which attempts fail by the fleet's fault has a record of that (package health):
// others that fit go first, and after several failures it is closed for a while, then given one task on
// trial. A task whose attempt failed so prefers other workers for a while, if any could run it, and is not given
// up before it failed on several.
//
// # The queue
//
// What waits stands in lanes of equal priority, project and need (package queue).
// Place goes through the priorities from the highest; at each it always takes the
// project whose dominant share is the least, and of that its oldest task. For a
// task that has been overtaken for longer than Config.Patience one worker is kept
// free, and for a gang (package gang) as many as it needs. Which is best, package place says.
//
// A decision costs a few microseconds and grows with the logarithm of the workers
// and of the queued items, and for each Place with the number of different needs
// that wait in vain.
//
// # What is promised
//
//   - A task has at most one accepted result, and attempt numbers only grow.
//   - A worker is never given more than it has. (One that comes back smaller than
//     it was may hold more until that ends.)
//   - Nothing is queued before the stages that it needs have succeeded.
//   - A refused event changes nothing.
//   - A cancelled task ends within kill.grace and half a minute, whatever its
//     worker does.
//   - After Place, no task is left in the queue that a worker could run now,
//     except one that this worker rejected less than ten seconds ago, and where
//     the worker is kept free for another.
//   - Nobody starves: if all that runs ends, a task that some worker could run starts
//     some day, however many others of equal or lower priority come.
//   - A State that is rebuilt from the rows that were committed has the same
//     Snapshot as the one that made them.
//
// That last equality leaves out what does not outlive the process: whether a
// worker is connected, constrained or was told to leave; when it was last heard
// (after a Rebuild: at that moment), and so whether it is unreachable; its load; whether an
// attempt was accepted; rejections in a row, and who is not asked again for now; how healthy a worker is;
// whether an attempt was told to make room, which follows from its worker's deadline;
// when a stopped attempt is given up (the wait begins anew); observed
// durations; since when nothing of a lane could be placed, and for whom a worker is
// kept free; progress that was reported in the last saveProgressEvery; how many
// tasks moved in the last minute, and how many attempts of a job failed, as far as its rows do not say. In a Snapshot every worker that is not gone is therefore unreachable.
//
// # What is not promised
//
//   - A task starts at least once, not exactly once: an attempt that was given up
//     may still run on a worker that is cut off, until it learns of it or its own lease ends.
//   - A higher priority always goes first: it may keep a lower one waiting for ever,
//     and use the worker that is kept free for it.
//   - Nothing that runs is stopped for something more important.
package sched
