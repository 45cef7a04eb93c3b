// Package qubix implements the protocol of QUBIX: JSON over HTTP between backends, workers and clients.
//
// The gateway (New) is a QUBIX backend: QUBIX workers become workers of Muster, and QUBIX clients submit jobs. The bridge
// (NewBridge) is a QUBIX worker: it accepts the jobs of a QUBIX backend, and Muster's workers run them.
//
// # Limits of the protocol
//
// A worker is one process that runs one job at a time and sends nothing meanwhile. It cannot be stopped, uploads no files, and
// logs only with its final report. Its id is its only credential, and two workers on one machine have the same id. It drops
// jobs of a heartbeat right after another job, so a job is offered until its first report. If the answer to its final report
// is lost, it reports once more, always as failed: the first report counts.
//
// # Simulated results
//
// The simple worker computes nothing: it runs a loop and invents its figures. It gets only tasks of kind foreign, which a
// QUBIX client submitted for QUBIX's own workers. The enhanced worker trains on MNIST and runs Python scripts. If a library is
// missing it invents a result marked as simulated, and the task fails.
package qubix
