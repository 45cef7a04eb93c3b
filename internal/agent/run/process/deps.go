package process

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Deps is what the executors of one worker share. It is not changed after the first executor was created with it.
type Deps struct {
	run.Deps

	Transfer         Transfer
	Logs             Logs
	LogCap           int64           // bytes of one attempt's output that are kept, at most; 0 means what the job sets, or muster.DefaultLogCap
	TaskTimeout      muster.Duration // of tasks that set none; 0 means no timeout
	LogRate          int64           // bytes per second that a task may print; 0 means run.DefaultLogRate
	AllowPrivateURLs bool            // scripts may be fetched from private addresses, and through the proxy of the environment
	Server           string          // URL of the worker's server, from which kinds fetch artifacts whatever its address is
	Supervisor       run.Supervisor
	GPUs             run.DeviceAllocator // nil: GPUs are not managed, and tasks see all of them
	Meter            Meter               // nil: tasks are not measured
	Checkpoints      CheckpointStore     // nil: checkpoints stay on this worker
	Containers       Containers          // nil: this worker does not run containers
	Access           run.AccessRegistry  // nil: clients cannot reach running attempts
	Execer           run.Execer          // executes commands in attempts without a container
	ModelPool        ModelPool           // nil: no models are kept loaded between tasks
}

// Logs is the worker's local store of output.
type Logs interface {
	run.Logs
	// Open reads records from offset, for a tasklog.Decoder that begins at offset.
	Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error)
	// RecordBefore returns the start of a record at or before offset.
	RecordBefore(ctx context.Context, a muster.AttemptID, offset int64) (int64, error)
}

// Transfer moves blobs between the server and the worker.
type Transfer interface {
	// Fetch writes a blob to path, which must not exist, and verifies it. A negative size is unknown, and at most muster.MaxStdin.
	Fetch(ctx context.Context, sha256 string, size int64, path string) error
	// FetchTree writes the files of a muster.Tree, given by the hash of its JSON form, to the folder dir, and nothing outside dir.
	FetchTree(ctx context.Context, sha256, dir string) error
	// UploadFile uploads a regular file, unless the server has its bytes already. f is at its start.
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
}

// Meter measures attempts while they run, and watches the limits that the kernel does not enforce. Its methods may be called concurrently.
type Meter interface {
	// Watch measures until stop is called, which returns the usage, as far as it was measured.
	Watch(s *meter.Subject, h meter.Handler) (stop func() muster.Usage)
}

// CheckpointStore keeps the checkpoint folders of tasks on the server. Its methods may be called concurrently, for different folders.
type CheckpointStore interface {
	// Load replaces the folder dir with the tree t.Checkpoint that an earlier attempt saved, unless dir holds that tree, or a newer state
	// made from it on this worker. After a failure or a crash dir must be loaded again. Its errors are TaskErrors.
	Load(ctx context.Context, t *run.Task, dir string) error
	// Watch saves dir repeatedly while the task runs, as t.Spec.Checkpoint says, until stop is called. stop saves the last changes, for
	// at most timeout; 0 means that it does not. logLine writes a line of the task's log; onSaved is called after each checkpoint that
	// was reported to the server.
	Watch(t *run.Task, dir string, logLine func(line string), onSaved func()) (stop func(timeout time.Duration))
	// Forget notes that dir was removed, or is about to be replaced.
	Forget(dir string)
}

// Containers creates containers for attempts. The Supervisor starts and supervises them, given StartSpec.Container. Its methods may be
// called concurrently.
type Containers interface {
	// Ready returns why no container can run now, nil if one can. It does not block.
	Ready() error
	// Create pulls the image as the spec's pull policy says and creates a container, which is not started. logLine writes to the task's
	// log, step sets its step. A failure is a TaskError and leaves no container behind.
	Create(ctx context.Context, b *run.ContainerSpec, logLine, step func(string)) (*run.Container, error)
	// Image pulls the image of a task as Create does, and returns the ID of its content and its name for messages.
	Image(ctx context.Context, t *run.Task, logLine, step func(string)) (id, name string, err error)
	// RunTool runs the command of a container that it creates, writes its output to w, and returns its exit code when the container is
	// removed. A command that cannot be executed is a TaskError with reason StartFailed.
	RunTool(ctx context.Context, b *run.ContainerSpec, w io.Writer) (int, error)
	// Started says that a created container has started, so that what only its start needs is released.
	Started(c *run.Container)
	// Remove ends a container and removes it with everything that was created for it. A missing container is not an error.
	Remove(ctx context.Context, c *run.Container) error
	// Exec executes a command in a running container, as its user. It fails with a *run.ExecError.
	Exec(ctx context.Context, c *run.Container, x *run.ExecSpec) (run.ExecProc, error)
}

// ModelPool keeps model servers, whose devices and memory are freed for tasks. Its methods may be called concurrently.
type ModelPool interface {
	// Evict ends the model servers on any of these devices, except that of key, and returns when their memory is free.
	Evict(ctx context.Context, gpus []string, key string) error
	// FreeMemory ends unused model servers, least recently used first, until this much memory is free in addition to the owner's reserve,
	// or none is left.
	FreeMemory(ctx context.Context, memory muster.Size)
}
