// Package wire is the line between a worker and a shim: the words that they say (ToShim, ToWorker), how these
// are read off a connection (Frames), and how they are sent without a wait for the other side (Outbox).
//
//	worker ── ToShim ───► Outbox ── frames ──► Frames ── ToShim ───► shim
//	       ◄── ToWorker ─ Frames ◄─ frames ─── Outbox ◄─ ToWorker ──
//
// A frame is its length and JSON. What a word means, and what is done when none comes, package shim tells.
//
// Frames of one Outbox arrive in the order in which they were put into it, each whole, or none after the first
// that does not. A word that is not understood costs only itself.
package wire
