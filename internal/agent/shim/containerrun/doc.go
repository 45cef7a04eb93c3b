// Package containerrun runs a task's container for a shim: it starts it, reads its output, stops it, and returns how it ended, across outages
// of the engine.
//
//	Start ─ attach, start ─► Wait ─► waitExit ───────── exited ─► ExitStatus
//	                                  ▲  │ connection broke,      ▲
//	                                  │  ▼ or the exit is unclear  │
//	                        running ─ reconnect ─ exited ──────────┘
//	                                     └──── removed, or timeout ─► engine_failed
//
// One goroutine waits for the container in Wait, one copies its output, one waits for its exit, and one carries out commands (signals, kills,
// freezes).
//
// Wait returns while the container still exists only if the engine does not return, or does not kill it, within Timeouts.Outage. Then the
// worker has to remove it.
package containerrun
