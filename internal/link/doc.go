// Package link is how workers and the server talk: the messages, their codec,
// and the sessions of both sides. Transports (wslink, polllink) carry frames;
// package linktest holds what they promise as tests.
//
//	worker                                    server
//	  │  dial, key as bearer token              │
//	  ├─ 1 hello: version, facts, held ────────►│  checks version and identity
//	  │◄──────────── 1 welcome: keep, stop ─────┤  or goodbye: why not
//	  │◄──────────── 2 specs, assign ───────────┤
//	  ├─ 2 accepted, started ──────────────────►│
//	  ├─ 3 logs, progress, renew ──────────────►│
//	  │◄──────────── 3 log_ack ─────────────────┤
//	  ├─ 4 finished ───────────────────────────►│  commits
//	  │◄──────────── 4 finished_ack ────────────┤
//	  ├─ 5 goodbye ────────────────────────────►│
//
// # Frames
//
// A frame is one JSON object, at most MaxFrame bytes, with what one side had to
// say since its last frame. Frames are numbered from 1 in each direction, without gaps. Within a frame
// messages take effect in the order of its fields. Decoding is strict: unknown
// fields, wrong ids, names of no meaning, negative sizes, more than MaxGPUs devices, MaxLogs
// bytes of logs or MaxOwnKinds of kinds, bytes after the end and frames out of turn are refused by name
// of the field, with an Invalid Goodbye, and end the session. Nothing of a refused frame takes effect.
//
// # Versions
//
// Hello comes first and names the protocol version. A server that does not
// speak it answers with an Invalid Goodbye that names both versions. So that
// this works for all time, the fields version, worker, name and build of Hello
// and the whole of Goodbye never change.
//
// # Delivery
//
// Within a session each frame arrives once and in order, or the session ends. A
// session that ends may lose the frames last sent in either direction, so nothing is true until it
// is acknowledged, and what matters is said again in the next session:
//
//   - Hello lists the attempts that the worker still runs and those whose
//     report is not acknowledged. Welcome answers for each: Keep, with how much of its
//     log the server has, or Stop: the attempt is no longer the worker's, and is to be killed and forgotten.
//   - Attempts assigned in a lost frame are not in Hello. The server takes them
//     back after a while and assigns them again under a new number.
//   - Finished is repeated until FinishedAck, which the server sends when the
//     report is on disk or refused for good. The server takes a report once, however often it comes.
//   - Logs carry offsets. LogAck says how much the server has, and the worker
//     goes on from there, whatever it sent before. With a Pause it does so after that
//     time: the server could not store the bytes, and took everything else in the frame.
//     The log of an attempt that was stopped or lost is sent to its end, too.
//   - A GroupSpec is known in its session only.
//   - Ready, Offer and Saved are said again in a new session; the last one counts.
//   - Heal is said once: if it is lost, it is asked again.
//
// # Liveness
//
// The worker renews its leases at least every Welcome.Heartbeat. A server that
// hears nothing for three heartbeats ends the session; the leases run on. A worker
// that hears nothing for one heartbeat asks with Ping, which is answered with Pong, and ends the
// session after three. A frame that does not leave within 30 seconds ends the
// session, too, and so do more than 131,072 messages waiting for a worker. Hello
// must come within 10 seconds.
//
// # End
//
// A Goodbye is a side's last frame, and its code says whether the worker should
// come back: Unavailable means after a Backoff; Conflict that another session
// of the same worker took over, which happens when a worker's data is used twice; other codes mean
// never. The newest session of a worker wins. A worker that says goodbye holds nothing any more, or gives it back:
// its leases end at once. A connection that just breaks means nothing of the sort.
//
// # Not promised
//
// Frames are not signed or encrypted: that is the transport's, by TLS. Nothing
// is promised about the order of the two directions to each other.
package link
