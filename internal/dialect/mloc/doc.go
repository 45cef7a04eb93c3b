// Package mloc speaks the dialect of MLOC in both directions.
//
// MLOC has a host (the orchestrator) and workers, with a Redis database between them: hashes and channels of JSON
// texts are the control plane, HTTP requests to the host the data plane.
//
//	foreign worker ──Redis: hash, events──▶ Gateway ──agent──▶ Muster's server     (gateway*.go)
//	       └─HTTP: results, files─────────▶    ▲
//	foreign client ──HTTP: YAML, records───────┘
//
//	foreign host ──Redis: tasks──▶ Bridge ──public API──▶ Muster's server           (bridge*.go)
//	       ◀──HTTP: results, files──┘
//
// The types of the wire are in wire.go, once for both.
package mloc
