package run

import (
	"context"

	"github.com/muster-dev/muster"
)

// Observer is told what happens while something is made for a task. Its functions may be called at the same time.
type Observer struct {
	Step      func(step string) // what is being done
	LogLine   func(line string) // a line for the task's log
	Requester string            // whom it is made for, as others are told who wait for the same; "" if nobody else does
}

// Runtime is a Python environment that comes with Muster, ready for use.
type Runtime struct {
	Name       string
	Python     string   // its interpreter, absolute
	VenvDir    string   // the folder of its virtual environment, "" for an interpreter that the operator gave
	ModuleDirs []string // folders for PYTHONPATH, with the modules of its kinds
	ReadDirs   []string // more folders that its programs read
}

// Runtimes makes the runtimes of one worker. Its methods may be called at the same time.
type Runtimes interface {
	// Get returns a runtime, built if need be. A failure is a TaskError, Dependency
	// where something is missing.
	Get(ctx context.Context, name string, observer Observer) (*Runtime, error)
	// ModuleDirs returns the folders with the modules of a runtime's kinds, for an image that has the
	// packages itself.
	ModuleDirs(name string) ([]string, error)
}

// ModelServer says how models are kept loaded between tasks, and what for.
type ModelServer struct {
	Key       string   // tasks with the same one are served by the same host
	Argv      []string // of the host; it listens on $MUSTER_WARM
	Env       []string
	ReadDirs  []string // folders that it may read
	WriteDirs []string // and change
	Attempt   muster.AttemptID
	GPUs      []string    // UUIDs of the devices of the task that asks
	CPUs      float64     // cores that the task has; 0 means no limit
	Memory    muster.Size // that the task has; 0 means no limit
}

// ModelPool keeps hosts. Its methods may be called at the same time.
type ModelPool interface {
	// Acquire returns the path of the socket of a host, started if there is none. The host is not
	// evicted before release was called. Nobody depends on a host: with an error, as without memory for one, the
	// task loads the model itself.
	Acquire(ctx context.Context, h *ModelServer, observer Observer) (path string, release func(), err error)
	// Evict ends all hosts that use one of these devices, but those of key, and returns when their memory is free.
	Evict(ctx context.Context, gpus []string, key string) error
	// FreeMemory ends hosts that nobody uses, those unused for longest first, until this much memory is
	// free besides what the owner wants left, or none is left to end.
	FreeMemory(ctx context.Context, memory muster.Size)
}
