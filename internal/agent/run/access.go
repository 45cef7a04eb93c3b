package run

import (
	"context"
	"io"

	"github.com/muster-dev/muster"
)

// Access is how clients reach an attempt while it runs. Its functions may be called concurrently, also after its end: then they fail.
type Access struct {
	// Exec executes a command with the rights, limits, environment and folder of the attempt's program. It fails with an *ExecError.
	Exec    func(ctx context.Context, x *ExecSpec) (ExecProc, error)
	Folders []AccessFolder // the working folder first
	LogLine func(line string)
}

// AccessFolder is a folder of an attempt.
type AccessFolder struct {
	Variable string // of the environment, which has its path, such as MUSTER_OUT; "" for the working folder
	TaskPath string // as the task sees it; "" if that is unknown
	Dir      string // on this machine
}

// ExecSpec is a command for a running attempt.
type ExecSpec struct {
	Argv          []string
	Env           []string // in addition to the attempt's
	Dir           string   // absolute, or relative to the attempt's working folder; "" means that folder
	TTY           bool     // its standard streams are a terminal
	Stdin         bool     // else its standard input is empty
	Rows, Columns int      // of the terminal
}

// ExecProc is a command that runs in an attempt. Its methods may be called concurrently.
type ExecProc interface {
	// Stdin returns the writing end of the standard input. Closing it ends the input, except for a terminal.
	Stdin() io.WriteCloser
	// Stdout returns the output, with a terminal all of it.
	Stdout() io.Reader
	// Stderr returns the error output; nil with a terminal.
	Stderr() io.Reader
	Resize(rows, columns int) error
	// Signal sends one of muster.TaskSignals to the command and what it started.
	Signal(name string) error
	// Wait returns how the command ended, when it has ended or can no longer be reached.
	Wait() ExecExit
	// Close hangs up: a command that runs receives SIGHUP, and is killed some seconds later.
	Close() error
}

// ExecExit is how a command ended.
type ExecExit struct {
	Code      int    `json:"code"` // 128+n for signal n
	Signal    string `json:"signal,omitempty"`
	TaskEnded bool   `json:"task_ended,omitempty"` // it was ended because the attempt did
	Error     string `json:"-"`                    // why it is unknown; "" if it is known
}

// Exit statuses of commands that cannot be executed.
const (
	ExecDenied   = 126
	ExecNotFound = 127
)

// ExecError is why a command did not start.
type ExecError struct {
	Code    int // ExecDenied or ExecNotFound if that is the program's fault, else 0
	Message string
}

// Error returns the message.
func (e *ExecError) Error() string { return e.Message }

// AccessRegistry has the attempts that clients may reach.
type AccessRegistry interface {
	// Add makes an attempt reachable until remove is called. It does not end commands that run then.
	Add(id muster.AttemptID, a *Access) (remove func())
}

// Execer executes commands in attempts that run as processes.
type Execer interface {
	Exec(ctx context.Context, id muster.AttemptID, x *ExecSpec) (ExecProc, error)
}
