// Package run is how a worker executes tasks: the Executor contract, the
// ordered hooks of a task's life, and the supervisor that runs them. Package
// runtest holds the contract as tests.
package run

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
)

// Task is one attempt to execute. ${…} is resolved in Spec.
type Task struct {
	Attempt muster.AttemptID
	Group   string // the stage's name
	Element string // of an array or matrix
	Spec    *muster.TaskSpec
	Grant   muster.Grant
	Inputs  []Input
}

// Input is an artifact that must be in the task's folder when it starts.
type Input struct {
	Path   string
	SHA256 string
	Size   int64
}

// Executor runs the tasks of one kind.
type Executor interface {
	// Kind is the kind that it runs.
	Kind() string
	// Run executes one attempt and returns how it ended; it never returns Open. It
	// blocks until nothing of the task is left. When ctx ends it stops the task
	// as Spec.Kill says and reports what context.Cause(ctx) asks for: see Stopped.
	Run(ctx context.Context, t *Task, sink Sink) muster.Report
}

// Sink receives what happens while a task runs. Its methods do not block for
// long, and may be called from several goroutines.
type Sink interface {
	// Started says that the task's work has begun.
	Started(at muster.Time)
	// Progress passes on a sign of life. It is cut to a sensible rate by the receiver.
	Progress(p muster.Progress)
	// LogGrew says that the attempt's local log has this many bytes.
	LogGrew(size int64)
}

// Stopped is the cause with which a task's context is cancelled: the report's
// outcome and reason.
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

// StoppedBy returns why ctx was cancelled: its Stopped cause, or, for any other
// one, that the worker shuts down.
func StoppedBy(ctx context.Context) *Stopped {
	if s, ok := errors.AsType[*Stopped](context.Cause(ctx)); ok {
		return s
	}
	return &Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerShutdown, Message: "the worker shut down"}
}

// Transfer brings blobs to the worker and takes them off it.
type Transfer interface {
	// Fetch writes a blob to path, which must not exist, verified.
	Fetch(ctx context.Context, sha256 string, size int64, path string) error
	// FetchTree materializes a muster.Tree, given by the hash of its JSON form, in
	// the folder dir. Nothing is written outside dir.
	FetchTree(ctx context.Context, sha256, dir string) error
	// Upload takes a file off the worker, unless the server has its bytes already.
	Upload(ctx context.Context, path string) (sha256 string, size int64, err error)
}

// Logs is where executors write output: the worker's own copy.
type Logs interface {
	Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error)
}
