// Package mloc implements the wire types and mappings that a host and a worker of MLOC share.
//
// MLOC has a host (the orchestrator) and workers, with a Redis database between them: hashes and channels of JSON
// texts are the control plane, HTTP requests to the host the data plane.
//
//	foreign worker ──Redis: hash, events──▶ mlochost ──agent──▶ Muster's server
//	       └─HTTP: results, files─────────▶    ▲
//	foreign client ──HTTP: YAML, records───────┘
//
//	foreign host ──Redis: tasks──▶ mlocbridge ──public API──▶ Muster's server
//	       ◀──HTTP: results, files──┘
//
// The types of the wire are in wire.go, what tasks mean to both systems in kinds.go, submissions and the references between
// their stages in expand.go and template.go.
package mloc
