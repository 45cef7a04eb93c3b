// Package wire is the protocol between a worker and a shim: its frames (ToShim, ToWorker), how they are read from a connection (FrameReader), and
// how they are sent without waiting for the other side (Outbox).
//
//	worker ── ToShim ──────► Outbox ── frames ──► FrameReader ── ToShim ──► shim
//	       ◄── ToWorker ─ FrameReader ◄─ frames ─ Outbox ◄────── ToWorker ──
//
// A frame is its length and JSON. Package shim has the meaning of the frames, and the timeouts.
//
// Frames of one Outbox arrive complete and in order, or not at all after the first one that is lost. An invalid frame does not affect the others.
package wire
