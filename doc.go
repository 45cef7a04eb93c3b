// Package muster defines the types that all other packages share: jobs, tasks,
// attempts, workers, resources, artifacts, states, reasons and errors. It does
// no I/O, reads no clock and starts no goroutine.
//
// A job is what a user submits. It expands to groups (the stages of its spec),
// and each group to one task or, for an array, matrix or gang, to many. Attempts
// execute a task, one at a time. Attempt numbers only grow: they are the fencing
// token that distinguishes a late report from a current one.
package muster

//go:generate go run ./internal/gen
