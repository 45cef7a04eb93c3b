package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Task is one attempt to execute. ${…} in Spec is resolved.
type Task struct {
	Attempt muster.AttemptID   `json:"attempt"`
	Job     string             `json:"job,omitempty"`     // the job's UID, see muster.Job
	Project string             `json:"project,omitempty"` // the job's
	Group   string             `json:"group"`             // the stage's name
	Element string             `json:"element,omitempty"` // of an array or matrix
	Spec    *muster.TaskSpec   `json:"spec"`
	Grant   muster.Grant       `json:"grant"`
	Inputs  []muster.InputFile `json:"inputs,omitempty"`

	// Secrets has the values of Spec.Secrets. They are in State neither, but in StartSpec.Env if they are variables.
	Secrets []muster.SecretValue `json:"-"`
	// Redact has the values that the log, progress and the report must not contain: see package redact. It is not in State.
	Redact [][]byte `json:"-"`

	Fresh      bool               `json:"fresh,omitempty"`      // its checkpoint folder begins empty, and is not kept for later attempts
	Checkpoint string             `json:"checkpoint,omitempty"` // SHA-256 of the muster.Tree that an earlier attempt saved; "" for none
	Gang       *muster.Membership `json:"gang,omitempty"`       // nil if it is not a member of one
	Port       io.Closer          `json:"-"`                    // reserves Gang.Port for the process, or nil: see ReleasePort
	Assigned   time.Duration      `json:"assigned"`             // when the worker received it, by bootclock.Now
	Recovered  *Recovered         `json:"-"`                    // set if the previous process of the worker started it: continue from there
}

// ReleasePort frees the port of the gang for the process, which is about to start and listen there. Other programs could take it in
// between. It is for one goroutine.
func (t *Task) ReleasePort() {
	if t.Port != nil {
		_ = t.Port.Close()
		t.Port = nil
	}
}

// Secret returns the value of one of Spec.Secrets, nil for a recovered task.
func (t *Task) Secret(name string) []byte {
	for i := range t.Secrets {
		if t.Secrets[i].Name == name {
			return t.Secrets[i].Value
		}
	}
	return nil
}

// State returns StartSpec.State for t.
func (t *Task) State() (json.RawMessage, error) { return json.Marshal(t) }

// Task returns the task of State, with Recovered set.
func (h *Recovered) Task() (*Task, error) {
	t := &Task{Recovered: h, Redact: h.Start.Redact}
	err := json.Unmarshal(h.Start.State, t)
	switch {
	case err != nil:
		return nil, Failf(muster.WorkerInternal, "cannot read the state that was stored at its start: %w", err)
	case t.Attempt != h.Start.Attempt || t.Spec == nil:
		return nil, Failf(muster.WorkerInternal, "the state that was stored at its start is of another attempt")
	}
	return t, nil
}

// Executor runs the tasks of one kind.
type Executor interface {
	// Kind returns the kind of its tasks.
	Kind() string
	// Run executes one attempt and returns its report, never with outcome Open. It blocks until no process of the task is left. When ctx
	// ends it stops the task as Spec.Kill says, and reports what context.Cause(ctx) asks for: see Stopped.
	Run(ctx context.Context, t *Task, reporter Reporter) muster.Report
}

// Reporter receives the events of a running task. Its methods do not block for long, and may be called concurrently.
type Reporter interface {
	// Started reports when the task's work began.
	Started(at muster.Time)
	// Process reports the task's main process, if it has one.
	Process(p Pid)
	// Progress reports progress. The receiver limits its rate.
	Progress(p muster.Progress)
	// LogGrew reports the size of the attempt's local log in bytes.
	LogGrew(size int64)
}

// Stopped is the cause with which a task's context is cancelled: the report's outcome and reason.
//
//nolint:errname // it is a cause, read as "the task was stopped", and a contract
type Stopped struct {
	Outcome muster.Outcome
	Reason  muster.Reason
	Message string
}

// Error returns the message, or the reason.
func (s *Stopped) Error() string { return cmp.Or(s.Message, string(s.Reason)) }

// StopCause returns why ctx was cancelled: its Stopped cause, or a shutdown of the worker for any other cause.
func StopCause(ctx context.Context) *Stopped {
	if s, ok := errors.AsType[*Stopped](context.Cause(ctx)); ok {
		return s
	}
	return ErrShutDown
}

// The causes that both a worker and its supervisor stop tasks for.
var (
	ErrShutDown   = &Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker shut down"}
	ErrLeaseEnded = &Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the lease ended while the server was unreachable"}
)

// ErrDetach is the cause with which a task's context is cancelled to leave its process to the next process of the worker: the executor
// returns at once, stops nothing and removes nothing. Its report is ignored.
var ErrDetach = errors.New("the worker detached from its tasks")

// Logs is the worker's local store of output. The worker writes the log of an attempt until its process starts, then only the Supervisor
// does.
type Logs interface{ tasklog.Segments }

// TaskError is why an attempt failed, for its report.
type TaskError struct {
	Reason   muster.Reason
	Message  string // one sentence for the user
	Err      error  // the cause, or nil; Message includes it
	ExitCode int    // of a command that could not be executed, as a shell reports it; 0 means none
}

// The exit codes of commands that could not be executed, as in POSIX shells.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// Error returns the message.
func (e *TaskError) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *TaskError) Unwrap() error { return e.Err }

// Failf returns a TaskError. %w verbs keep their operands as causes. A cause that is a full disk overrides reason with DiskFull.
func Failf(reason muster.Reason, format string, args ...any) *TaskError {
	wrapped := fmt.Errorf(format, args...)
	if errors.Is(wrapped, errDiskFull) {
		reason = muster.DiskFull
	}
	return &TaskError{Reason: reason, Message: wrapped.Error(), Err: wrapped}
}

// StartFailf is Failf with reason StartFailed and the exit code ExitNotFound or ExitNotExecutable.
func StartFailf(code int, format string, args ...any) *TaskError {
	e := Failf(muster.StartFailed, format, args...)
	e.ExitCode = code
	return e
}
