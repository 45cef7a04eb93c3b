// Package process runs tasks as processes of the worker's machine, or in containers.
//
// A task's life is the list in hooks.go, from top to bottom. The folders of an
// attempt are
//
//	DIR/tasks/17.3-2/work   the task's folder: its working directory, with the
//	                        project's files and the inputs
//	DIR/tasks/17.3-2/out    $MUSTER_OUT
//	DIR/tasks/17.3-2/tmp    $TMPDIR and $HOME
//	DIR/tasks/17.3-2/events $MUSTER_EVENTS, if the task writes it
//	DIR/tasks/17.3-2/input.json $MUSTER_INPUT, of tasks of defined kinds
//	DIR/checkpoints/KIND/job-UID.3 $MUSTER_CHECKPOINT, kept for the task's next attempt
//
// and all but the last are removed when the attempt ends.
//
// # In a container
//
// The same life: its first phase decides what the attempt runs in, and what differs are the phases of a
// setting. The container has the attempt's folder at /muster, with the checkpoint and the muster module mounted
// on top, and nothing else of the worker's. It is made here and not started; from then on it is to the supervisor what a
// process is. An attempt that may run in either goes over to a process as long as nothing of it was started. When it has ended its
// container is removed, while its outputs are looked at.
//
// # The process
//
// It belongs to the supervisor, which starts it, writes its output to the attempt's
// log, keeps its timeout and kills what it leaves: see package shim. An executor
// only follows it. So it can be left when the worker ends (run.ErrDetach): the next life
// passes a Task with Held set, and its executor goes on where this one followed.
// Until the process starts the worker writes the log, from then on the supervisor does. A
// task that prints nothing makes no log.
//
// # The end
//
// A program that fails may say why in $MUSTER_OUT/failure.json, which is no artifact: see failure.go.
// When the main process exits, whatever else the task started is killed first. Artifacts are
// taken off afterwards, when nothing can change them any more; then the report is
// settled, and only then the folders are removed: a worker that is killed in between has
// either the folders or the report.
package process
