package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Supervisor is the parent of the main processes of tasks. It outlives the worker: the next process of the worker recovers what it holds.
// Its methods may be called concurrently.
type Supervisor interface {
	// Start starts an attempt's process, which the Supervisor holds until Forget. A failure leaves nothing behind.
	Start(ctx context.Context, s *StartSpec, reporter Reporter) (Proc, error)
	// Adopt continues an attempt of Recovered as Start does.
	Adopt(h *Recovered, reporter Reporter) (Proc, error)
	// Recovered lists the attempts that the previous process of the worker started and did not Forget.
	Recovered() []Recovered
	// SetLastContact sets when, by bootclock.Now, the server last knew that the worker was alive. The Supervisor kills attempts whose leases
	// have ended, with or without a worker.
	SetLastContact(at time.Duration)
	// LastContact returns the last contact, including that of the previous process; 0 for none.
	LastContact() time.Duration
	// Freeze stops all processes of an attempt, or continues them. Timeouts keep counting.
	Freeze(id muster.AttemptID, frozen bool) error
	// Forget releases exited attempts. Running ones are killed.
	Forget(ids ...muster.AttemptID)
}

// StartSpec says what to start and how to supervise it.
type StartSpec struct {
	Attempt   muster.AttemptID `json:"attempt"`
	State     json.RawMessage  `json:"state"` // what the worker needs to recover the attempt; opaque here
	Path      string           `json:"path"`  // of the program, absolute or relative to Dir
	Argv      []string         `json:"argv"`
	Env       []string         `json:"env"`
	Dir       string           `json:"dir"`
	EnvTag    string           `json:"mark"`   // an entry of Env that only this attempt's processes have
	Events    string           `json:"events"` // the path of $MUSTER_EVENTS
	Isolation *IsolationSpec   `json:"confine,omitempty"`
	Stdin     string           `json:"stdin,omitempty"` // a file of the worker that is the standard input of Path; "" for an empty one

	// Container is started in place of Path if it is not nil. Then Argv is only for messages, Env is unused, and Dir and Events are as usual.
	Container *Container `json:"container,omitempty"`

	LogSize int64 `json:"log_size"` // of the attempt's existing log
	LogCap  int64 `json:"log_cap"`  // bytes of output that are kept; 0 means muster.DefaultLogCap
	LogRate int64 `json:"log_rate"` // bytes per second that the task may print; 0 means DefaultLogRate

	Timeout time.Duration `json:"timeout,omitempty"` // of the process; 0 means none
	Lease   time.Duration `json:"lease"`             // how long it may run after the last contact
	Kill    muster.Kill   `json:"kill"`              // with its defaults filled in

	Redact [][]byte `json:"redact,omitempty"` // see Task.Redact; it is never written to a file
}

// Recovered is an attempt that the previous process of the worker started.
type Recovered struct {
	Start   StartSpec   `json:"start"`
	Started muster.Time `json:"started"`
	PID     Pid         `json:"pid"`
	Exit    *Exit       `json:"exit,omitempty"` // nil while it runs
	LogSize int64       `json:"log_size"`
	Frozen  bool        `json:"frozen,omitempty"`
	// Report is the report of an ended attempt, if the worker has made it. Then the attempt's folders may be removed.
	Report *muster.Report `json:"report,omitempty"`
}

// Proc is one started process. Its methods may be called concurrently.
type Proc interface {
	// Pid identifies the main process.
	Pid() Pid
	// Started returns when it started.
	Started() muster.Time
	// Done is closed when the process has exited, no process of the task is left, and all output is in the log. Then Exit is not nil.
	Done() <-chan struct{}
	// Exit returns nil while the process runs.
	Exit() *Exit
	// Stop sends the process a signal, and kills all processes of the task after the grace; the zero Kill means StartSpec.Kill. The first
	// cause becomes Exit.Stopped; a later, shorter grace applies.
	Stop(cause *Stopped, kill muster.Kill)
	// AppendLog appends to the attempt's log, until SaveReport. A sample (tasklog.Usage) or point (tasklog.Points) may still be written
	// after it returns.
	AppendLog(stream tasklog.Stream, data []byte)
	// LogSize returns the size of the log in bytes, including all earlier calls of AppendLog.
	LogSize() int64
	// SaveReport stores the report for the next process of the worker, in case this one ends before the server has it. After it the
	// attempt's folders may be removed.
	SaveReport(r *muster.Report)
}

// Pid identifies a process, even after its number was reused.
type Pid struct {
	PID        int    `json:"pid"`         // and of its process group
	StartTicks uint64 `json:"start_ticks"` // start time since boot, in the kernel's ticks; 0 means unknown
	BootID     string `json:"boot_id"`
	EnvTag     string `json:"mark"` // an environment entry of this attempt's processes only
}

// Exit is how a main process ended.
type Exit struct {
	Code      int           `json:"code"`             // 128+n for signal n
	Signal    string        `json:"signal,omitempty"` // its name, "" for none
	Wall      time.Duration `json:"wall"`
	CPU       time.Duration `json:"cpu"`               // including children that it waited for
	MaxRSS    muster.Size   `json:"max_rss,omitempty"` // of the largest of these; 0 if unknown
	At        muster.Time   `json:"at"`
	Stopped   *Stopped      `json:"stopped,omitempty"` // why it was stopped, or nil; a log that cannot be written is a cause too
	OOM       bool          `json:"oom,omitempty"`     // it was killed while the machine was out of memory; or a process in its container was, while the container was
	Survivors int           `json:"left,omitempty"`    // processes that could not be killed
}

// ContainerSpec is what an attempt's container needs, in addition to the image, options and network of its spec. All paths but sources of
// mounts are paths in the container.
type ContainerSpec struct {
	Task           *Task
	Argv           []string       // nil for the image's own command
	HasInterpreter bool           // Argv begins with a shell or an interpreter, and replaces the image's entrypoint
	Env            []string       // overrides the image's; the paths of PYTHONPATH precede those of the image
	Path           string         // a folder that precedes PATH, or ""
	NoInit         bool           // Argv is the first process, so that an error of its execution is one of the start
	Prepared       bool           // something was built for the image that the worker has: it is not pulled again, only if it is missing
	Dir            string         // working directory; "" for the image's own
	Mounts         []Mount        // of the attempt's folders
	Home           string         // a folder that the program's user can write
	Stdin          string         // path of a file in the container that is its standard input; "" for an empty one
	Isolation      *IsolationSpec // its CgroupParent is the container's, if it is set and the engine supports it; nil for none

	// OpenMounts makes the writable mounts writable for every user. It is called before a container is created whose program may run as
	// another user than the worker, without root.
	OpenMounts func() error
}

// Mount is a folder of the worker in a container.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Container is a container that was created for an attempt.
type Container struct {
	Engine     string   `json:"engine"` // the URL of its engine's API, such as unix:///var/run/docker.sock
	ID         string   `json:"id"`
	Image      string   `json:"image"`           // by its digest, such as docker.io/library/python@sha256:…
	ImageName  string   `json:"name,omitempty"`  // of its image as the user wrote it, such as python:3.12
	AllowHosts []string `json:"hosts,omitempty"` // with network: allowlist, the hosts that it may reach; not nil then

	InCgroup bool `json:"grouped,omitempty"` // it is in IsolationSpec.Cgroups, which limit and measure it

	// Written has the folders of this machine in which the engine keeps what the container writes outside its mounts: the writable layer and the
	// image's volumes. They are measured; nil if the worker cannot read them.
	Written []string `json:"written,omitempty"`
}
