package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster"
)

// Task is one attempt to execute. ${…} is resolved in Spec.
type Task struct {
	Attempt muster.AttemptID `json:"attempt"`
	Job     string           `json:"job,omitempty"`     // the job's UID, see muster.Job; "" in tasks that an older worker started
	Group   string           `json:"group"`             // the stage's name
	Element string           `json:"element,omitempty"` // of an array or matrix
	Spec    *muster.TaskSpec `json:"spec"`
	Grant   muster.Grant     `json:"grant"`
	Inputs  []Input          `json:"inputs,omitempty"`

	Checkpoint string        `json:"checkpoint,omitempty"` // sha256 of the muster.Tree that an earlier attempt saved; "" for none
	Gang       *Gang         `json:"gang,omitempty"`       // nil if it is no member of one
	Port       io.Closer     `json:"-"`                    // holds Gang.Port for the process; nil if nothing does: see ReleasePort
	Assigned   time.Duration `json:"assigned"`             // when it came, by Clock
	Recovered  *Recovered    `json:"-"`                    // if an earlier life of the worker started it: go on from there
}

// ReleasePort gives the port of the gang free for the process, which is about to start
// and to listen there. Others may take it in the moment between. It is for one goroutine.
func (t *Task) ReleasePort() {
	if t.Port != nil {
		_ = t.Port.Close()
		t.Port = nil
	}
}

// State is what Start.State is to be for t.
func (t *Task) State() (json.RawMessage, error) { return json.Marshal(t) }

// Task returns the task that State was made of, with Held set.
func (h *Recovered) Task() (*Task, error) {
	t := &Task{Recovered: h}
	err := json.Unmarshal(h.Start.State, t)
	switch {
	case err != nil:
		return nil, Failf(muster.WorkerInternal, "what was noted of it at its start cannot be read: %w", err)
	case t.Attempt != h.Start.Attempt || t.Spec == nil:
		return nil, Failf(muster.WorkerInternal, "what was noted of it at its start is not of it")
	}
	return t, nil
}

// Gang is the place of a member among the others.
type Gang struct {
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Master string `json:"master"` // host name or address of the worker of rank 0
	Port   int    `json:"port"`   // on which the master listens
}

// Input is an artifact that must be in the task's folder when it starts.
type Input struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Executor runs the tasks of one kind.
type Executor interface {
	// Kind is the kind that it runs.
	Kind() string
	// Run executes one attempt and returns how it ended; it never returns Open. It
	// blocks until nothing of the task is left. When ctx ends it stops the task
	// as Spec.Kill says and reports what context.Cause(ctx) asks for: see Stopped.
	Run(ctx context.Context, t *Task, reporter Reporter) muster.Report
}

// Reporter receives what happens while a task runs. Its methods do not block for
// long, and may be called from several goroutines.
type Reporter interface {
	// Started says that the task's work has begun.
	Started(at muster.Time)
	// Process says which process is the task's main one, if it has one.
	Process(p Pid)
	// Progress passes on a sign of life. It is cut to a sensible rate by the receiver.
	Progress(p muster.Progress)
	// LogGrew says that the attempt's local log has this many bytes.
	LogGrew(size int64)
}

// Stopped is the cause with which a task's context is cancelled: the report's
// outcome and reason.
//
//nolint:errname // it is a cause, read as "the task was stopped", and a contract
type Stopped struct {
	Outcome muster.Outcome
	Reason  muster.Reason
	Message string
}

// Error returns the message, or the reason.
func (s *Stopped) Error() string {
	if s.Message != "" {
		return s.Message
	}
	return string(s.Reason)
}

// StopCause returns why ctx was cancelled: its Stopped cause, or, for any other
// one, that the worker shuts down.
func StopCause(ctx context.Context) *Stopped {
	if s, ok := errors.AsType[*Stopped](context.Cause(ctx)); ok {
		return s
	}
	return &Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker shut down"}
}

// ErrDetach is the cause with which a task's context is cancelled to leave its
// process to the worker's next life: the executor returns at once, stops nothing and
// removes nothing. What it returns does not count.
var ErrDetach = errors.New("the worker leaves its tasks to its next life")

// Transfer brings blobs to the worker and takes them off it.
type Transfer interface {
	// Fetch writes a blob to path, which must not exist, verified.
	Fetch(ctx context.Context, sha256 string, size int64, path string) error
	// FetchTree materializes a muster.Tree, given by the hash of its JSON form, in
	// the folder dir. Nothing is written outside dir.
	FetchTree(ctx context.Context, sha256, dir string) error
	// UploadFile takes the bytes of a plain file off the worker, unless the server has
	// them already. f is at its beginning.
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
}

// Logs is where output is written: the worker's own copy. The worker writes the log of
// an attempt until its process starts, and from then on only the Supervisor does.
type Logs interface {
	Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error)
}

// TaskError is why an attempt failed, for its report.
type TaskError struct {
	Reason  muster.Reason
	Message string // one sentence for the user
	Err     error  // the cause, if there is one; Message tells it already
}

// Error returns the message.
func (e *TaskError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *TaskError) Unwrap() error { return e.Err }

// Failf makes a TaskError. %w verbs keep their operands as causes. Whatever the
// reason given, a cause that is a full disk makes it DiskFull.
func Failf(reason muster.Reason, format string, args ...any) *TaskError {
	wrapped := fmt.Errorf(format, args...)
	if errors.Is(wrapped, errDiskFull) {
		reason = muster.DiskFull
	}
	return &TaskError{Reason: reason, Message: wrapped.Error(), Err: wrapped}
}
