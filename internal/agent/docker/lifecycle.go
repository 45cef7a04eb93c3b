package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// State is the state of a container.
type State struct {
	Running  bool // also if paused
	Paused   bool
	Removing bool
	ExitCode int    // 128+n for signal n; valid if it is not running
	OOM      bool   // the kernel killed a process of it because memory ran out
	Error    string // the engine's error of the start
	Program  string // the file that it executes
	PID      int    // of the main process on the engine's machine; 0 if none
	Finished time.Time
}

// Attach returns the output of a container from now on; all of it before the start. No output is dropped: the container blocks while
// the output is not read.
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
	// The engine's errors have no kind here.
	if _, err := e.State(ctx, id); err != nil {
		return nil, err
	}
	return nil, wrapped
}

// Logs returns the stored output of a container and, with follow, its output from now on. SplitTimestamp splits each frame. The stream
// must begin within timeout; it lasts until it is closed or ctx ends.
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
	return nil, e.wrapError(ctx, "the container's logs cannot be read", err)
}

// Start starts a container that was created.
func (e *Engine) Start(ctx context.Context, id string) error {
	_, err := e.api.Load().ContainerStart(ctx, id, client.ContainerStartOptions{})
	return e.wrapError(ctx, "the container cannot be started", err)
}

// Wait waits until a started container has exited and returns its exit code. It has no timeout. An error other than ErrNotFound and that
// of ctx says nothing about the container; it wraps ErrUnreachable if the connection broke.
func (e *Engine) Wait(ctx context.Context, id string) (int, error) {
	const doing = "the container's exit cannot be awaited"
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

// State returns the state of a container.
func (e *Engine) State(ctx context.Context, id string) (*State, error) {
	const doing = "the container cannot be inspected"
	res, err := e.api.Load().ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	s := res.Container.State
	if s == nil {
		return nil, fmt.Errorf("%s: the engine did not return its state", doing)
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

// WrittenFolders returns the folders of the engine's machine that have what a container writes outside its mounts: its writable layer, if the
// engine's storage is overlayfs, and the volumes that its image asks for.
func (e *Engine) WrittenFolders(ctx context.Context, id string) ([]string, error) {
	res, err := e.api.Load().ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, "the container cannot be inspected", err)
	}
	var list []string
	if g := res.Container.GraphDriver; g != nil && g.Data["UpperDir"] != "" {
		list = append(list, g.Data["UpperDir"])
	}
	for _, m := range res.Container.Mounts {
		if m.Type == mount.TypeVolume && m.Source != "" {
			list = append(list, m.Source)
		}
	}
	return list, nil
}

// program returns the file that a container executes. Podman prepends its init.
func program(path string, args []string) string {
	if path == "/run/podman-init" && len(args) > 1 && args[0] == "--" {
		return args[1]
	}
	return path
}

// Kill sends a signal, by name, to a container's main process; "" means SIGKILL, which kills all processes of the container. It does not
// wait for the exit. It is not an error if the container does not run.
func (e *Engine) Kill(ctx context.Context, id, signal string) error {
	_, err := e.api.Load().ContainerKill(ctx, id, client.ContainerKillOptions{Signal: signal})
	return e.ignoreIf(ctx, id, "the container cannot be signalled", err, func(s *State) bool { return !s.Running })
}

// Pause pauses or, with on false, resumes all processes of a container. It is not an error if nothing changes.
func (e *Engine) Pause(ctx context.Context, id string, on bool) error {
	var err error
	doing := "the container cannot be resumed"
	if on {
		doing = "the container cannot be paused"
		_, err = e.api.Load().ContainerPause(ctx, id, client.ContainerPauseOptions{})
	} else {
		_, err = e.api.Load().ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	}
	return e.ignoreIf(ctx, id, doing, err, func(s *State) bool { return s.Paused == on })
}

// ignoreIf returns the error of a request unless the container is in the wanted state. Engines report that with different texts.
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
