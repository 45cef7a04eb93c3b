package run

import (
	"context"
	"time"
)

// CheckpointStore keeps the checkpoint folders of tasks on the server. Its methods may be called concurrently, for different folders.
type CheckpointStore interface {
	// Load replaces the folder dir with the tree t.Checkpoint that an earlier attempt saved, unless dir holds that tree, or a newer state
	// made from it on this worker. After a failure or a crash dir must be loaded again. Its errors are TaskErrors.
	Load(ctx context.Context, t *Task, dir string) error
	// Watch saves dir repeatedly while the task runs, as t.Spec.Checkpoint says, until stop is called. stop saves the last changes, for
	// at most timeout; 0 means that it does not. logLine writes a line of the task's log; onSaved is called after each checkpoint that
	// was reported to the server.
	Watch(t *Task, dir string, logLine func(line string), onSaved func()) (stop func(timeout time.Duration))
	// Forget notes that dir was removed, or is about to be replaced.
	Forget(dir string)
}
