// Package mlochost implements a host of MLOC: workers of that system become workers of a Muster server, and its clients submit to it.
//
//	Redis ──events──▶ session ──▶ a peer for each worker ──▶ fleet.Worker ──▶ Muster's server
//	  ▲  └──hashes──▶ sweep ─────────▶│                                            ▲
//	  └──tasks───────────────────────┘                                             │ jobs
//	clients ──YAML──▶ handler ──▶ ledger ◀── driver ────────────────────────────────┘
//	workers ──results, files──▶ handler ──▶ results
//
// # Redis
//
// The database is never emptied, and what others wrote there is not removed. A key of the gateway's own says which server is
// its host; a second one waits. When the database was emptied, workers that do not register again by themselves are put back
// with their next heartbeat, as they were. News that was lost is found out by the hashes: a worker that is idle does not run
// what it was given.
//
// # Tasks
//
// A worker is given one task at a time, when its hash says IDLE. If it does not begin, the message is published again, and
// after some times the task goes back to the server. A result counts if it is of the attempt that runs now: deliveries carry a header that the task
// gave them. Others are answered like any, and have no effect.
//
// What clients submit is on disk before they are answered. Each stage is a Muster job of its own, submitted when what it
// needs is done and its references are resolved, under an idempotency key; so the semantics are those of MLOC, and a kill at
// any moment loses or doubles nothing.
package mlochost
