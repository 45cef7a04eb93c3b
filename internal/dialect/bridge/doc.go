// Package bridge is what the bridges of all foreign systems have in common: the jobs of a foreign server become Muster
// jobs, and what becomes of them goes back.
//
//	foreign server ── job ──► system's bridge ── Accept ──► outbox (on disk) ──► Muster's API
//	      ▲                                                    │                     │ events
//	      └──── Progress, Log, Finish: the system's Port ◄─────┴─────────────────────┘
//
// A bridge is a client of the public API and nothing else. It is safe to kill the bridge, the Muster server, its workers
// and the foreign server at any moment:
//
//   - Accept returns after the job is on disk. The same foreign id is taken once, also after a restart and after its end.
//   - A job is submitted under an idempotency key made of the system, the foreign server and the foreign id, so that a
//     submission whose answer was lost makes no second job.
//   - The final report is repeated until the foreign server takes or refuses it. A crash between the report and its note
//     leaves open whether it arrived: a Port that is a Finisher asks the foreign server; otherwise the report is sent again,
//     as all systems keep the first one.
//
// Progress is sent at most once in an interval, and only the last one counts. Log lines are sent in order, of the job's first
// task, and again only where the answer was lost.
package bridge
