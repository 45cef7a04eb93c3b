package run

import (
	"context"
	"time"
)

// CheckpointStore keeps the checkpoint folders of tasks on the server. All methods
// may be called at the same time, for different folders.
type CheckpointStore interface {
	// Load makes the folder dir what an earlier attempt saved, the tree
	// t.Checkpoint, unless it holds that, or what was made of it on this worker since.
	// It replaces the folder whole. After a failure or a crash dir is to be loaded again before it is used. Its
	// errors are TaskErrors.
	Load(ctx context.Context, t *Task, dir string) error
	// Watch saves dir again and again while the task runs, as t.Spec.Checkpoint
	// says, until the returned func is called. That one saves once more what has changed
	// and takes no longer than last, 0 for not at all. say is for lines of the task's log, and saved is called
	// after each checkpoint that the server was told of.
	Watch(t *Task, dir string, logLine func(line string), onSaved func()) (stop func(timeout time.Duration))
	// Forget says that dir was removed, or is about to be made anew.
	Forget(dir string)
}
