// Package vessel is what a shim holds of a task that runs in a container: it
// starts it, reads its output, stops it, and tells how it ended, whatever becomes
// of the connection with the engine in between.
//
//	Start ─ attach, start ─► Wait ─► stand ──────────── ended ─► Ended
//	                                  ▲  │ the connection broke,  ▲
//	                                  │  ▼ or the end is unsure    │
//	                        running ─ resume ─ exited, judged ────┘
//	                                     └──── gone, or too late ─► engine_failed
//
// One goroutine stands by the container in Wait, one passes its output on, one waits for its
// end, and one carries out orders (signals, kills, freezes) as soon as the engine takes them.
//
// Of a container that is still there its Wait returns only when the engine does not come back or does
// not kill within Patience. Then it is the worker's to remove it.
package containerrun
