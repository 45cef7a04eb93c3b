package run

import (
	"context"

	"github.com/muster-dev/muster"
)

// Observer is notified while something is prepared for a task. Its functions may be called concurrently.
type Observer struct {
	Step      func(step string) // the current step
	LogLine   func(line string) // a line for the task's log
	Requester string            // who requested it, in the messages of other tasks that wait for it; ""
}

// Runtime is a managed Python environment, ready for use.
type Runtime struct {
	Name       string
	Python     string   // its interpreter, absolute
	VenvDir    string   // of its virtual environment, "" for an interpreter that the operator configured
	ModuleDirs []string // folders for PYTHONPATH, with the modules of its kinds
	ReadDirs   []string // other folders that its programs read
}

// Runtimes builds the runtimes of one worker. Its methods may be called concurrently.
type Runtimes interface {
	// Get returns a runtime, and builds it if needed. A failure is a TaskError, with reason Dependency if something is missing.
	Get(ctx context.Context, name string, observer Observer) (*Runtime, error)
	// ModuleDirs returns the folders with the modules of a runtime's kinds, for an image that has the packages itself.
	ModuleDirs(name string) ([]string, error)
}

// ModelServer describes a model server that a task asks for.
type ModelServer struct {
	Key       string   // tasks with the same key use the same model server
	Argv      []string // of the server; it listens on $MUSTER_WARM
	Env       []string
	ReadDirs  []string // folders that it may read
	WriteDirs []string // folders that it may change
	Attempt   muster.AttemptID
	GPUs      []string    // UUIDs of the task's devices
	CPUs      float64     // cores of the task; 0 means no limit
	Memory    muster.Size // of the task; 0 means no limit
}

// ModelPool keeps model servers. Its methods may be called concurrently.
type ModelPool interface {
	// Acquire returns the socket path of a model server, which it starts if needed. The server is not evicted before release is called.
	// No task depends on a server: after an error, such as not enough memory, the task loads the model itself.
	Acquire(ctx context.Context, h *ModelServer, observer Observer) (path string, release func(), err error)
	// Evict ends the model servers on any of these devices, except that of key, and returns when their memory is free.
	Evict(ctx context.Context, gpus []string, key string) error
	// FreeMemory ends unused model servers, least recently used first, until this much memory is free in addition to the owner's reserve,
	// or none is left.
	FreeMemory(ctx context.Context, memory muster.Size)
}
