// Package process runs tasks as processes of the worker's machine.
//
// A task's life is the list in hooks.go, from top to bottom. The folders of an
// attempt are
//
//	DIR/tasks/17.3-2/work   the task's folder: its working directory, with the
//	                        project's files and the inputs
//	DIR/tasks/17.3-2/out    $MUSTER_OUT
//	DIR/tasks/17.3-2/tmp    $TMPDIR and $HOME
//	DIR/tasks/17.3-2/events $MUSTER_EVENTS, if the task writes it
//	DIR/checkpoints/KIND/17.3 $MUSTER_CHECKPOINT, kept for the task's next attempt
//
// and all but the last are removed when the attempt ends.
//
// # Output
//
// Stdout and stderr are pipes, each read by one goroutine into a buffer of fixed
// size. What is read is cut into lines, stamped, and appended to the attempt's log
// at once; the beginning of a line that does not end is appended after 200 ms, so
// that prompts show. Lines of the task protocol are taken out. A task that prints
// faster than Env.LogRate is slowed by reading its pipes slower. A task that
// prints nothing makes no log.
//
// # The end
//
// When the main process exits, whatever else the task started is killed before
// the report is made: see package run. Artifacts are taken off afterwards, when
// nothing can change them any more.
package process
