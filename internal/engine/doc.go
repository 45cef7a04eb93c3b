// Package engine is the one goroutine that owns the scheduler's state.
//
//	API, sessions, timers ── letters ──► inbox
//	                                       │ everything that waits, at once
//	                                       ▼
//	            decide (sched.Apply, sched.Place) ──► commit (one transaction) ──► act
//	                                                        │ failed                 │
//	                                                        ▼                        ▼
//	                                    drop the state, reload, start again    answer callers, send
//	                                                                           to workers, publish
//
// Nobody is told anything that is not on disk: answers, words to workers and
// events go out only after the commit that holds what they say. The progress of running
// tasks is the exception: it is published at once, and written every few seconds. If a commit
// fails, memory is ahead of disk: every caller in the batch gets an error that
// says "not done, safe to retry", all sessions are ended (workers come back and
// say what they hold), and the state is rebuilt from the store.
//
// There is no timer on the way from an event to its effect. A batch is whatever
// gathered in the inbox while the previous one was committed: one letter on an
// idle server, hundreds under load, so that the cost of the disk is shared.
//
// The clock of the engine is the wall clock at its start plus the monotonic time
// since: a step of the wall clock does not end leases.
package engine
