package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// State is what an engine says of a container.
type State struct {
	Running  bool // paused counts as that
	Paused   bool
	Removing bool   // it is being removed
	ExitCode int    // 128+n for signal n; of use if it is not running
	OOM      bool   // something in it was killed for memory
	Error    string // why it could not be started, in the engine's words
	Program  string // as it was to be executed
	PID      int    // of its main process where the engine is; 0 if it has none
	Finished time.Time
}

// Attach returns what a container prints from now on. Before its start that is all of
// it. Nothing is thrown away while nobody reads: the container waits then.
func (e *Engine) Attach(ctx context.Context, id string) (*Output, error) {
	const doing = "the container's output cannot be read"
	res, err := e.api.Load().ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err == nil {
		return newOutput(res.Reader, res.Conn), nil
	}
	wrapped := e.wrapError(ctx, doing, err)
	if ctx.Err() != nil || errors.Is(wrapped, ErrUnreachable) {
		return nil, wrapped
	}
	// Whatever the engine answers here is an error without a kind.
	if _, err := e.State(ctx, id); err != nil {
		return nil, err
	}
	return nil, wrapped
}

// Logs returns what the engine kept of all that a container printed, and, with follow, what
// it prints from now on. Each piece is one that Stamp takes apart. It begins within a time, and
// goes on until it is closed or ctx ends.
func (e *Engine) Logs(ctx context.Context, id string, follow bool, timeout time.Duration) (*Output, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
	res, err := e.api.Load().ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: follow})
	if err == nil && timer.Stop() {
		return newOutput(res, closer(func() error { cancel(nil); return res.Close() })), nil
	}
	if err == nil {
		err = errors.Join(context.Cause(ctx), res.Close())
	}
	defer cancel(nil)
	return nil, e.wrapError(ctx, "what the container printed cannot be read", err)
}

// Start starts a container that was created.
func (e *Engine) Start(ctx context.Context, id string) error {
	_, err := e.api.Load().ContainerStart(ctx, id, client.ContainerStartOptions{})
	return e.wrapError(ctx, "the container cannot be started", err)
}

// Wait returns when a container that was started does not run any more, with its
// exit code. It takes as long as that: an error that is neither ErrNotFound nor ctx's says
// nothing of the container, and wraps ErrUnreachable if the connection broke.
func (e *Engine) Wait(ctx context.Context, id string) (int, error) {
	const doing = "the container's end cannot be awaited"
	w := e.api.Load().ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case r := <-w.Result:
		if r.Error != nil {
			return 0, fmt.Errorf("%s: %s", doing, r.Error.Message)
		}
		return int(r.StatusCode), nil
	case err := <-w.Error:
		return 0, e.wrapError(ctx, doing, err)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// State asks for the state of a container.
func (e *Engine) State(ctx context.Context, id string) (*State, error) {
	const doing = "the container cannot be looked at"
	res, err := e.api.Load().ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	s := res.Container.State
	if s == nil {
		return nil, fmt.Errorf("%s: the engine does not tell its state", doing)
	}
	finished, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
	if err != nil && !s.Running {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return &State{
		Running: s.Running || s.Paused, Paused: s.Paused, Removing: s.Dead || s.Status == container.StateRemoving, ExitCode: s.ExitCode, OOM: s.OOMKilled, Error: s.Error,
		Program: program(res.Container.Path, res.Container.Args), PID: s.Pid, Finished: finished,
	}, nil
}

// program is what a container executes, by what an engine says of that: Podman names its init first.
func program(path string, args []string) string {
	if path == "/run/podman-init" && len(args) > 1 && args[0] == "--" {
		return args[1]
	}
	return path
}

// Kill sends a signal, by its name, to a container's main process; "" means SIGKILL, which
// ends all of the container. It returns before that has happened. One that does not run is no
// error.
func (e *Engine) Kill(ctx context.Context, id, signal string) error {
	_, err := e.api.Load().ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
	return e.ignoreIf(ctx, id, "the container cannot be signalled", err, func(s *State) bool { return !s.Running })
}

// Pause stops all processes of a container, or lets them go on. It is no error if that is
// so already.
func (e *Engine) Pause(ctx context.Context, id string, on bool) error {
	var err error
	doing := "the container cannot be thawed"
	if on {
		doing = "the container cannot be frozen"
		_, err = e.api.Load().ContainerPause(ctx, id, client.ContainerPauseOptions{})
	} else {
		_, err = e.api.Load().ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	}
	return e.ignoreIf(ctx, id, doing, err, func(s *State) bool { return s.Paused == on })
}

// ignoreIf returns the error of what was asked for, unless the container is in the wanted state anyway:
// engines say so in words that differ.
func (e *Engine) ignoreIf(ctx context.Context, id, doing string, err error, wanted func(*State) bool) error {
	if err == nil {
		return nil
	}
	wrapped := e.wrapError(ctx, doing, err)
	if ctx.Err() != nil || errors.Is(wrapped, ErrUnreachable) || errors.Is(wrapped, ErrNotFound) {
		return wrapped
	}
	if s, err := e.State(ctx, id); err == nil && wanted(s) {
		return nil
	}
	return wrapped
}
