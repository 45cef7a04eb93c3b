// Package muster is the vocabulary of Muster: jobs, tasks, attempts, workers,
// resources, artifacts, states, reasons and errors. Every other package speaks
// in these words. It does no I/O, reads no clock and starts no goroutine.
//
// A job is what a user submits; it expands to groups (the stages of its spec),
// and each group to one task or, for an array or a matrix, to many. A task is
// executed by attempts, one at a time. Attempt numbers only grow: they are the
// fencing token by which a late report is told from a current one.
package muster

//go:generate go run ./internal/gen/states
//go:generate go run ./internal/gen/jobschema
//go:generate go run ./internal/gen/openapi
//go:generate go run ./internal/gen/metrics
//go:generate go run ./internal/gen/clidocs
