// Package gang decides what becomes of tasks that start together or not at all.
// It is pure, and knows the members of a gang by their rows only.
//
//	          all placed in one Place              all others are done
//	queued ───────────────────────────► running ───────────────────────► succeeded
//	   ▲                                   │ ended well: done, waits for the others
//	   │                                   │
//	   │  the last of the others ended     │ one ended otherwise, or was rejected
//	   └───────────────────────────── broken ──────────────────────────► failed, timed_out,
//	      restart: as retries allow                end: no further try     the others cancelled
//
// The members of a gang are the elements of one group, and element n has rank n.
// They stand in the queue as one item, and are taken out of it when there is room
// for each of them at the same time: two gangs never wait for each other, because
// one that waits holds nothing.
//
// From then on each member is a task like others, with a worker, a lease and reports of
// its own, until its attempt ends. One that ended well is done: its worker has its
// room back, and its row is that of a running task without a grant. When the last
// one is done, all of them have succeeded.
//
// When one ends otherwise, the gang is broken. That member is judged as a task by
// itself would be, and the verdict holds for all: if there is to be another try it
// is queued, and counts once in each row; else it has ended. In the same commit
// those that were done are queued or cancelled, too, and the others are told
// to stop, with the reason gang_member. Each follows when its attempt has ended,
// however it ends. So whether a broken gang starts anew can be read from its rows: a
// member that is queued says yes, and one that has ended says no. The gang is placed
// again when the last of them is queued, and the pauses of all are past.
//
// A machine that goes takes its members along, and the others die of that long
// before the server gives it up. So a member that fails while the worker of another one is
// unreachable counts as the fleet's fault.
//
// A gang whose member has to make room for good reason (its worker is drained, or
// shuts down) makes room as one, so that all save at the same time.
//
// # What is promised
//
//   - No member is assigned unless all are, in the same commit.
//   - No member has succeeded unless all have.
//   - While one is queued or has ended, every other one is on its way out.
//   - A gang that is asked to stop, or of which one member was, ends or starts anew
//     as a whole.
package gang
