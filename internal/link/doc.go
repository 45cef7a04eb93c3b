// Package link is the protocol between workers and the server: the messages, their codec,
// and the sessions of both sides. Transports (wslink, polllink) carry frames;
// package linktest has the contract of a transport as tests.
//
//	worker                                    server
//	  │  dial, session token as bearer token    │
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
// A frame is one JSON object of at most MaxFrame bytes. It has all messages that one side queued
// since its last frame. Frames are numbered from 1 in each direction, without gaps. Within a frame
// messages take effect in the order of its fields. Decoding is strict: unknown
// fields, invalid ids, unknown names, negative sizes, more than maxGPUs devices, MaxLogs
// bytes of logs or MaxOwnKinds of kinds, data after the end and frames out of order end the session with an
// Invalid Goodbye that names the field. If an object repeats a name, its last value counts. No part of a
// refused frame takes effect.
//
// # Versions
//
// Hello comes first and names the protocol version. A server that does not
// speak it answers with an Invalid Goodbye that names both versions. To keep
// this working, the fields version, worker, name and build of Hello
// and all of Goodbye never change.
//
// # Delivery
//
// Within a session each frame arrives once and in order, or the session ends. A
// session that ends may lose the last frames in either direction. So both sides treat a message as lost until it
// is acknowledged, and repeat what matters in the next session:
//
//   - Hello lists the attempts that the worker still runs and those whose
//     report is not acknowledged. Welcome answers for each: Keep, with how much of its
//     log the server has, or Stop: the attempt no longer belongs to the worker, which kills and forgets it.
//   - Attempts assigned in a lost frame are not in Hello. The server takes them
//     back after a while and assigns them again under a new number.
//   - Finished is repeated until FinishedAck, which the server sends when the
//     report is on disk or permanently refused. The server accepts a report once, however often it arrives.
//   - Logs carry offsets. LogAck has how many bytes the server has, and the worker
//     continues from there, whatever it sent before. If LogAck has a Pause, the worker waits for that
//     time first: the server could not store the bytes, and accepted everything else in the frame.
//     The log of an attempt that was stopped or lost is sent to its end, too.
//   - A GroupSpec is valid in its session only.
//   - Ready, Offer and Saved are repeated in a new session; the last one counts.
//   - Heal is sent once: if it is lost, the user repeats the request.
//
// # Liveness
//
// The worker renews its leases at least every Welcome.Heartbeat. A server that
// receives nothing for three heartbeats ends the session; the leases stay valid. A worker
// that receives nothing for one heartbeat sends Ping, which the server answers with Pong, and ends the
// session after three. A session also ends if a frame cannot be sent within 30 seconds,
// if more than 131,072 messages wait for a worker, or if Hello does not arrive within 10 seconds.
//
// # End
//
// A Goodbye is a side's last frame. Its code determines whether the worker
// reconnects: Unavailable means after a backoff; other codes mean never. Before a new session
// of a worker replaces its older one, the server pings that. If it answers within three seconds, the server pings the new one before its Welcome: if
// that answers, too, two processes have the worker's identity, and both get a Forbidden Goodbye; if not, its Hello was late, and nothing changes. If the
// older one does not answer, it is replaced, with a Conflict. So a worker closes a connection before it opens the next one. A worker that says goodbye holds no attempts, or returns them:
// its leases end at once. A connection that breaks has no such meaning.
//
// # Signatures
//
// If the worker's credential has a secret, which only it and the server know, every frame of its sessions and of
// the connections of its Execs is signed (Seal), with TLS and without: "1 ID SEQUENCE TIME SIGNATURE FRAME", where
//
//   - ID names the connection and the direction: 8 bytes in hex,
//   - SEQUENCE is the number of the frame, TIME the sender's time in Unix milliseconds, each 8 bytes in hex,
//   - SIGNATURE is HMAC-SHA256 over all other bytes, in base64 without padding.
//
// ID and the key of a direction are derived by HKDF-SHA256 from the secret, from a nonce that each side chose for the
// connection and named in the header Muster-Link-Nonce of the request or response that opened it, and from the id of the
// Exec. So a frame is valid once, in its place in one connection. The first frame of a direction determines how the two
// clocks differ: it is fresh, since its key depends on a nonce of its receiver, and must arrive within 10 seconds. A
// later frame may arrive at most SealTolerance later or earlier by that. Steps of a clock within a connection have no effect,
// and time includes what a machine sleeps (package bootclock), so that sleeps do not add up.
//
// A frame that is unsigned, altered, foreign, replayed, reordered or late ends the session, and nothing of it takes effect. The server sends an Unavailable Goodbye
// with the reason; a worker closes the connection without a Goodbye, so that its leases stay valid. Both connect
// again. A side that has a secret uses no connection without signatures.
//
// If a frame is late only because its receiver was suspended, the session ends in the same way, but with that reason and without a FrameError. A frame that
// is late because its sender was suspended does not arrive: its receiver has ended the session after three silent heartbeats.
//
// # Not promised
//
// Frames are not encrypted: TLS in the transport does that. An attacker between both sides without TLS reads
// frames, and can end sessions or keep them from beginning. Credentials without a secret (StaticToken) have no signatures.
// The two directions have no order relative to each other.
package link
