// Package engine runs the goroutine that owns the scheduler's state.
//
//	API, sessions, timers ── requests ──► inbox
//	                                       │ all waiting requests at once
//	                                       ▼
//	            decide (sched.Apply, sched.Place) ──► commit (one transaction) ──► act
//	                                                        │ failed                 │
//	                                                        ▼                        ▼
//	                                    drop the state, reload, start again    reply to callers, send
//	                                                                           to workers, publish
//
// Replies, commands to workers and events are sent only after the commit of the rows that
// they depend on. The progress of running tasks is the exception: it is published at once,
// and written every few seconds. If a commit fails, memory is ahead of disk: every caller
// in the batch gets an error that says "not done, safe to retry", all sessions are ended
// (the workers reconnect and list what they hold), and the state is rebuilt from the store.
//
// There is no timer between an event and its effect. A batch is what gathered in the inbox
// while the previous one was committed: one request on an idle server, hundreds under load,
// which then share the cost of one commit.
//
// The engine's time is the wall clock at its start plus the monotonic time since then: a
// step of the wall clock does not end leases.
package engine
