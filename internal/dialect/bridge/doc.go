// Package bridge runs the jobs of a foreign server as Muster jobs and reports their results to that server. It is the part
// that the bridges of all foreign systems share.
//
//	foreign server ── job ──► system's bridge ── Accept ──► outbox (on disk) ──► Muster's API
//	      ▲                                                    │                     │ events
//	      └── Progress, Log, Finish: the system's Reporter ◄───┴─────────────────────┘
//
// A bridge only uses the public API. The bridge, the Muster server, its workers and the foreign server may be killed at any
// moment:
//
//   - Accept returns after the job is on disk. It accepts a foreign id once, also after a restart and after the job's end.
//   - The idempotency key of a submission consists of the system, the foreign server and the foreign id. A submission whose
//     answer was lost therefore creates no second job.
//   - The final report is repeated until the foreign server accepts or refuses it. After a crash between the report and its
//     record, a Reporter that is a FinishChecker asks the foreign server whether it arrived; otherwise the report is sent
//     again, as all systems keep the first one.
//
// Progress is sent at most once in an interval. Log lines of the job's first task are sent in order, and repeated only if the
// answer was lost.
package bridge
