package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/dialect"
)

// Config is what a Fleet is made of.
type Config struct {
	Server   dialect.Server
	Dir      string // of this fleet alone; made if it is not there
	Version  string // of this program
	Log      *slog.Logger
	System   string        // such as "qubix": each worker has the tag dialect:qubix and the label dialect=qubix
	Silence  time.Duration // without a Touch for so long a worker is unreachable
	Busy     time.Duration // the same while it runs a task that began; 0 means Silence
	Lacks    []string      // what none of its workers can carry out: see muster.Worker
	Projects []string      // whose tasks are taken; nil means all. See dialect.Config.Projects
	Kinds    []string      // that are allowed; nil means all. See dialect.Config.Kinds
	Price    float64       // per hour, of workers that name none
	Tells    bool          // its workers are told of a cancellation: one that was told is free again
	Most     int           // workers; 0 means 1000
}

// Facts is what a worker says of itself.
type Facts struct {
	ID        string // in its own system, and there unique
	Name      string // shown to people; "" means ID
	Version   string // of its program
	Tags      []string
	Labels    map[string]string
	Kinds     []string // of Muster, that it runs
	Price     float64  // per hour; 0 means Config.Price
	Resources muster.Resources
	Lacks     []string   // beside Config.Lacks
	Projects  []string   // nil means Config.Projects
	Remote    netip.Addr // where it is; members of gangs meet there
	Key       string     // the id of the key with which it registered, "" for none. With another one its id cannot be taken over
}

// Why a task is over, in the chain of Task.Why and of what Fleet.Late returns.
var (
	ErrReported  = errors.New("its final report was taken")
	ErrCancelled = errors.New("it was cancelled")
	ErrTimedOut  = errors.New("it ran for longer than it may")
	ErrGivenUp   = errors.New("it was given up, because its worker was away for too long")
	ErrReturned  = errors.New("it was handed back")
)

// Ending is how a task ended on its worker.
type Ending struct {
	Outcome  muster.Outcome // AttemptSucceeded, AttemptFailed, AttemptTimedOut or AttemptCancelled
	Reason   muster.Reason  // of a failure
	Message  string
	ExitCode *int
	Result   json.RawMessage // one JSON value; nil for none
	Usage    *muster.Usage
}

// Fleet is all workers of one gateway. Its methods may be called at the same time.
type Fleet struct{}

// Worker is one foreign worker. Its methods may be called at the same time.
type Worker struct{}

// Task is one attempt that a worker holds. Its methods may be called at the same time.
type Task struct{}

func unavailable() error { return muster.Errorf(muster.Unavailable, "foreign workers are not served yet") }

// Open reads the state in cfg.Dir: workers, and the tasks that they hold. Nothing is said to the server before Run. It is a
// Conflict if another process has the folder.
func Open(cfg Config) (*Fleet, error) { return nil, unavailable() }

// Run keeps the sessions of all workers until ctx ends. Then it leaves their tasks to the next Fleet on the folder, and
// closes the state. Without Run the caller closes the Fleet.
func (f *Fleet) Run(ctx context.Context) error { return unavailable() }

// Close closes the state of a Fleet that was not run.
func (f *Fleet) Close() error { return nil }

// Register enters a worker, or changes the facts of a known one and touches it; one that had left comes back. It returns once
// the server knows a new worker. It is Forbidden if another key registered the id, Conflict if there are too many
// workers, and Invalid for facts that the server would not take.
func (f *Fleet) Register(ctx context.Context, facts Facts) (*Worker, error) { return nil, unavailable() }

// Worker returns the worker with this id in its system, nil if it is unknown or was removed by an administrator. One that
// left or was drained is known: see Worker.Err.
func (f *Fleet) Worker(id string) *Worker { return nil }

// Workers returns all workers by id.
func (f *Fleet) Workers() []*Worker { return nil }

// Task returns the task with this id, nil if it is unknown or over: then Late says more.
func (f *Fleet) Task(id string) *Task { return nil }

// Late takes note that a worker sent a final report of a task that is over: whatever it did, it does not run the task any
// more. It returns why the task is over, a Conflict with one of the Err… in its chain, or NotFound if nobody remembers such a task.
func (f *Fleet) Late(id string) error { return unavailable() }

// ID is the worker's id in its system.
func (w *Worker) ID() string { return "" }

// Facts returns what it said of itself last.
func (w *Worker) Facts() Facts { return Facts{} }

// Err returns nil while the worker belongs to the fleet, else why not: it left, was drained, or was removed.
func (w *Worker) Err() error { return nil }

// Seen is when it was last touched.
func (w *Worker) Seen() time.Time { return time.Time{} }

// Touch says that the worker was just heard of. load is what its machine does, nil if it did not say.
func (w *Worker) Touch(load *muster.Load) {}

// Idle says that the worker asked for work and runs nothing of what began: if tasks that were cancelled or timed out kept
// it, it is free.
func (w *Worker) Idle() {}

// Tasks returns what it holds and what is not over: what did not begin first, and of each the oldest first.
func (w *Worker) Tasks() []*Task { return nil }

// Changed has a token after Tasks changed. One goroutine waits for it; before it waits it has looked at Tasks.
func (w *Worker) Changed() <-chan struct{} { return nil }

// Leave hands back what the worker holds, and says goodbye to the server. It is known until it registers again.
func (w *Worker) Leave(ctx context.Context) error { return unavailable() }

// Constrain has the worker take nothing new, for the reason why of one of several sources; "" takes that source's word back.
func (w *Worker) Constrain(source, why string) {}

// ID names the attempt to the foreign worker: a random UUID, the same after restarts.
func (t *Task) ID() string { return "" }

// Worker is who holds it.
func (t *Task) Worker() *Worker { return nil }

// Run returns what is to be done. It is not to be changed.
func (t *Task) Run() *run.Task { return nil }

// Began reports whether the worker is known to run it.
func (t *Task) Began() bool { return false }

// Offered is when the worker's fleet received it.
func (t *Task) Offered() time.Time { return time.Time{} }

// Begin takes the first sign that the worker runs it. Later calls do nothing. It is a Conflict if the task is over.
func (t *Task) Begin() error { return unavailable() }

// Progress passes on a sign of life; it implies Begin. It is a Conflict if the task is over.
func (t *Task) Progress(p muster.Progress) error { return unavailable() }

// Log appends lines to the task's log, each without its newline; what is over the log's bound is dropped, and the log says so.
// It implies Begin. It is a Conflict if the task is over.
func (t *Task) Log(ctx context.Context, lines ...string) error { return unavailable() }

// Folder returns a folder with the task's files and inputs, which are fetched at the first call. It is removed with the
// task. A failure to fetch is a run.TaskError, with which the task can be ended.
func (t *Task) Folder(ctx context.Context) (string, error) { return "", unavailable() }

// Attach takes an artifact of at most max bytes and stores it on the server. The name is a relative path inside a folder. A
// later one of the same name takes its place.
func (t *Task) Attach(ctx context.Context, name string, r io.Reader, maxBytes int64) error { return unavailable() }

// Finish ends the task. It returns nil only when the server has the report on disk; with another error than Conflict or Invalid the report may
// be kept, and is sent until the server has it: to repeat the same call is right. It is a Conflict if the task is
// over, or has another report.
func (t *Task) Finish(ctx context.Context, end Ending) error { return unavailable() }

// Over is closed once the task is over: reported, cancelled, timed out, given up or handed back.
func (t *Task) Over() <-chan struct{} { return nil }

// Why returns nil until the task is over, and then a Conflict that says why, with one of the Err… in its chain.
func (t *Task) Why() error { return nil }
