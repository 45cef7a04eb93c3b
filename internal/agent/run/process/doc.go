// Package process runs tasks as processes of the worker's machine, or in containers.
//
// phases.go lists the phases of an attempt in order. The folders of an attempt are
//
//	DIR/tasks/17.3-2/work   the task's folder: its working directory, with the
//	                        project's files and the inputs
//	DIR/tasks/17.3-2/out    $MUSTER_OUT
//	DIR/tasks/17.3-2/tmp    $TMPDIR and $HOME
//	DIR/tasks/17.3-2/events $MUSTER_EVENTS, if the task writes it
//	DIR/tasks/17.3-2/input.json $MUSTER_INPUT, of tasks of defined kinds
//	DIR/checkpoints/KIND/job-UID.3 $MUSTER_CHECKPOINT, kept for the task's next attempt
//
// All but the last are removed when the attempt ends.
//
// # In a container
//
// The first phase decides between a process and a container; some phases are only for one of them. The container sees the
// attempt's folder at /muster, with the checkpoint and the muster module mounted below it, and nothing else of the worker's.
// This package creates it; the supervisor starts it and supervises it like a process. If the engine cannot create it, an attempt
// that may run in either mode falls back to a process. The container is removed after its exit, while the outputs are collected.
//
// # The process
//
// The supervisor (package shim) starts the process, writes its output to the attempt's log, enforces its timeout and kills its
// descendants. An executor only follows it, so the process survives the worker (run.ErrDetach): the next incarnation passes a Task
// with Recovered set. The worker writes the log until the process starts, the supervisor from then on. A task that prints nothing
// has no log.
//
// # The end
//
// A program that fails may report why in $MUSTER_OUT/failure.json, which is not an artifact: see report.go. When the main process
// exits, everything else that the task started is killed first. Then nothing can change the artifacts, and they are uploaded. Then
// the report is saved, and only then are the folders removed: a worker that is killed in between has the folders or the report.
package process
