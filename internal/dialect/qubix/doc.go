// Package qubix speaks the protocol of QUBIX: JSON over HTTP, as its simple and its enhanced worker and its backends do.
//
// The gateway (New) is a QUBIX backend: QUBIX workers register, send heartbeats, take jobs and report, and are workers of
// Muster; QUBIX clients create jobs and look at them. The bridge (NewBridge) is a QUBIX worker: it takes the jobs of a QUBIX
// backend, and Muster's workers run them.
//
// # What the protocol does not have
//
// A worker is one process that runs one job at a time and is silent meanwhile. It cannot be told to stop, sends no files, and
// logs only with its last report. Its id is its only credential, and two workers on one machine have the same. It throws
// jobs away that a heartbeat brought right after another job, so a job is offered until the first report of it comes. When the
// answer to its last report is lost it reports once more, then always as failed: the first one counts.
//
// # What counts as computed
//
// The simple worker computes nothing that was asked for: it runs a loop and makes its figures up. It is given tasks of kind
// foreign only, which a QUBIX client submitted for QUBIX's own workers. The enhanced worker really trains on MNIST and runs
// Python scripts; where it lacks a library it invents a result and marks it as simulated, and the task fails for that.
package qubix
