package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Supervisor starts the main processes of tasks and stands by them. It outlives
// the worker: what it holds is there for the worker's next life. All methods may be called
// at the same time.
type Supervisor interface {
	// Start starts an attempt's process. What it returns ends only with Forget.
	// A failure to start leaves nothing behind.
	Start(ctx context.Context, s *StartSpec, reporter Reporter) (Proc, error)
	// Adopt continues with an attempt of Held, as Start did.
	Adopt(h *Recovered, reporter Reporter) (Proc, error)
	// Recovered lists what an earlier life of the worker started and did not Forget.
	Recovered() []Recovered
	// SetLastContact says when, by the boot clock, the server last knew that the worker
	// lives. The Supervisor kills what outlives its lease, worker or not.
	SetLastContact(at time.Duration)
	// LastContact returns the last Contact, that of an earlier life included; 0 for none.
	LastContact() time.Duration
	// Freeze stops all processes of an attempt, or lets them go on. Timeouts run on.
	Freeze(id muster.AttemptID, frozen bool) error
	// Forget ends the standing by attempts that have exited. Others are killed.
	Forget(ids ...muster.AttemptID)
}

// StartSpec says what to start and how to stand by it.
type StartSpec struct {
	Attempt   muster.AttemptID `json:"attempt"`
	State     json.RawMessage  `json:"state"` // what the worker needs to take the attempt up again; opaque here
	Path      string           `json:"path"`  // of the program, absolute or relative to Dir
	Argv      []string         `json:"argv"`
	Env       []string         `json:"env"`
	Dir       string           `json:"dir"`
	EnvTag    string           `json:"mark"`   // an entry of Env that only this attempt's processes have
	Events    string           `json:"events"` // the path of $MUSTER_EVENTS
	Isolation *IsolationSpec   `json:"confine,omitempty"`

	// Container, if it is set, is started in place of Path. Argv serves for messages then;
	// Env is of no use; Dir and Events are as for any other.
	Container *Container `json:"container,omitempty"`

	LogSize int64 `json:"log_size"` // that the attempt's log has already
	LogCap  int64 `json:"log_cap"`  // bytes, then it is cut
	LogRate int64 `json:"log_rate"` // bytes a second that the task may print

	Timeout time.Duration `json:"timeout,omitempty"` // of the process; 0 means none
	Lease   time.Duration `json:"lease"`             // how long it may go on after the last Contact
	Kill    muster.Kill   `json:"kill"`              // with its defaults filled in
}

// Recovered is an attempt that an earlier life of the worker started.
type Recovered struct {
	Start   StartSpec   `json:"start"`
	Started muster.Time `json:"started"`
	PID     Pid         `json:"pid"`
	Exit    *Exit       `json:"exit,omitempty"` // nil while it runs
	LogSize int64       `json:"log_size"`
	Frozen  bool        `json:"frozen,omitempty"`
	// Report is what the worker made of the end, if it came that far: the
	// attempt's folders may be gone then.
	Report *muster.Report `json:"report,omitempty"`
}

// Proc is one started process. Its methods may be called at the same time.
type Proc interface {
	// Pid names the main process beyond doubt.
	Pid() Pid
	// Started is when it began.
	Started() muster.Time
	// Done is closed when it has exited, nothing of the task is left and all of its
	// output is in the log; then Exit returns how.
	Done() <-chan struct{}
	// Exit returns nil while the process runs.
	Exit() *Exit
	// Stop asks the process to end by a signal, and kills all of the task after the
	// grace; the zero Kill means Start.Kill. Exit.Stopped tells why. The first
	// reason counts, a shorter grace is heeded.
	Stop(cause *Stopped, kill muster.Kill)
	// AppendLog appends to the attempt's log, until the report is settled. A sample (tasklog.Usage) or point (tasklog.Points) may
	// still be on its way when it returns.
	AppendLog(stream tasklog.Stream, data []byte)
	// LogSize is how many bytes the log has, with all that was recorded before the call.
	LogSize() int64
	// SaveReport keeps the report for the worker's next life, should this one end before
	// the server has it. After it the attempt's folders may go.
	SaveReport(r *muster.Report)
}

// Pid names a process beyond doubt, also after its number was given to another
// one.
type Pid struct {
	PID        int    `json:"pid"`         // also the number of its process group
	StartTicks uint64 `json:"start_ticks"` // since boot, in the kernel's ticks; 0 means unknown
	BootID     string `json:"boot_id"`
	EnvTag     string `json:"mark"` // an environment entry that only this attempt's processes have
}

// Exit is how a main process ended.
type Exit struct {
	Code      int           `json:"code"`             // 128+n for signal n
	Signal    string        `json:"signal,omitempty"` // its name, "" for none
	Wall      time.Duration `json:"wall"`
	CPU       time.Duration `json:"cpu"`               // with the children that it waited for
	MaxRSS    muster.Size   `json:"max_rss,omitempty"` // of the largest of these; 0 if unknown
	At        muster.Time   `json:"at"`
	Stopped   *Stopped      `json:"stopped,omitempty"` // why it was told to stop, if it was; a log that cannot be written is a reason
	OOM       bool          `json:"oom,omitempty"`     // it was killed, and the machine had run out of memory; or something in its container was, for that had
	Survivors int           `json:"left,omitempty"`    // processes that could not be killed
}
