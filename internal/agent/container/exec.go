package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

// hangUpGrace is the time between SIGHUP and SIGKILL for a command whose client has gone.
const hangUpGrace = 5 * time.Second

// exitPoll is the pause between checks of a command whose output has ended.
const exitPoll = 50 * time.Millisecond

// startPoll is the pause between checks of a command that is being started.
const startPoll = 5 * time.Millisecond

// exitKilled is the exit code of a command that was killed, as all in a container are when it ends.
const exitKilled = 128 + 9

// containerEndWindow is more than a busy engine takes to notice the end of a container whose processes it has killed. As much later the end of
// a command is reported that was killed alone.
const containerEndWindow = 3 * time.Second

// Exec executes a command in a running container, as its user. The engine ends it with the container.
func (c *Containers) Exec(ctx context.Context, ctr *run.Container, x *run.ExecSpec) (run.ExecProc, error) {
	// Not the context of the request: it would end the connection.
	exec, err := c.cfg.Engine.Exec(context.WithoutCancel(ctx), ctr.ID, &docker.ExecOptions{
		Argv: x.Argv, Env: x.Env, Dir: x.Dir, TTY: x.TTY, Stdin: x.Stdin, Rows: x.Rows, Columns: x.Columns,
	})
	if err != nil {
		return nil, explainExec(x.Argv[0], 0, err)
	}
	p := &execProc{exec: exec, engine: c.cfg.Engine, container: ctr.ID, tty: x.TTY, timeout: c.timeouts.request, log: c.cfg.Log, done: make(chan struct{})}
	if state, err := p.awaitStart(ctx); err == nil && state.failed() {
		text, _ := io.ReadAll(io.LimitReader(exec, maxStartError)) // the exit code says enough
		_ = exec.Close()
		return nil, explainExec(x.Argv[0], state.ExitCode, errors.New(strings.TrimSpace(string(text))))
	}
	p.wg.Go(p.await)
	if x.TTY {
		_ = p.Resize(x.Rows, x.Columns) //nolint:contextcheck // engines lose the size of the start
		return p, nil
	}
	var out, errs *io.PipeWriter
	p.stdout, out = io.Pipe()
	p.stderr, errs = io.Pipe()
	p.wg.Go(func() { split(exec.Output(), out, errs) })
	return p, nil
}

// maxStartError is the maximum length of an engine's message about a command that did not start, in bytes.
const maxStartError = 4096

// explainExec is the error of a command that did not start. code is its exit code according to the engine, 0 if there is none.
func explainExec(name string, code int, err error) error {
	text := err.Error()
	switch {
	case code == run.ExecNotFound, strings.Contains(text, "no such file or directory"), strings.Contains(text, "executable file not found"):
		return &run.ExecError{Code: run.ExecNotFound, Message: fmt.Sprintf("cannot execute %s: there is no such program or folder in the container", name)}
	case strings.Contains(text, "permission denied"):
		return &run.ExecError{Code: run.ExecDenied, Message: fmt.Sprintf("cannot execute %s in the container: permission denied", name)}
	}
	return &run.ExecError{Message: fmt.Sprintf("cannot execute %s in the container: %v", name, err)}
}

// split copies the output of a command to its streams.
func split(o *docker.Output, out, errs *io.PipeWriter) {
	for {
		stream, _, err := o.Next()
		if err != nil {
			_ = out.Close()
			_ = errs.Close()
			return
		}
		w := out
		if stream == docker.Stderr {
			w = errs
		}
		if _, err := io.Copy(w, o); err != nil {
			_ = out.CloseWithError(err)
			_ = errs.CloseWithError(err)
			return
		}
	}
}

// execProc is a command in a container.
type execProc struct {
	exec      *docker.Exec
	engine    *docker.Engine
	container string
	tty       bool
	timeout   time.Duration // of requests
	log       *slog.Logger
	stdout    *io.PipeReader
	stderr    *io.PipeReader

	done    chan struct{}
	exit    run.ExecExit // set before done is closed
	closing sync.Once
	wg      sync.WaitGroup
}

// execState is the state of a command.
type execState struct{ docker.ExecState }

// ended reports whether a command has ended that may be one that has not started yet, which only an exit code or a PID shows.
func (s execState) ended() bool { return !s.Running && (s.PID != 0 || s.ExitCode != 0) }

// failed reports whether the command could not be started. Engines of Docker say why in its output.
func (s execState) failed() bool {
	return !s.Running && s.PID == 0 && (s.ExitCode == run.ExecDenied || s.ExitCode == run.ExecNotFound)
}

// awaitStart waits until the command runs or has ended.
func (p *execProc) awaitStart(ctx context.Context) (execState, error) {
	for unknown := 0; ; {
		state, err := p.state() //nolint:contextcheck // it has a limit of its own
		switch {
		case err != nil, state.ended(), state.Running && state.PID != 0:
			return state, err
		case !state.Running:
			if unknown++; unknown > 1 {
				return state, nil
			}
		}
		if err := backoff.Sleep(ctx, startPoll); err != nil {
			return state, err
		}
	}
}

// await waits until the command has ended: engines have no request that does.
func (p *execProc) await() {
	defer close(p.done)
	for failures := 0; ; {
		state, err := p.state()
		switch {
		case err == nil && (state.ended() || !state.Running && failures < 0):
			p.exit = run.ExecExit{Code: state.ExitCode, TaskEnded: state.ExitCode == exitKilled && p.awaitContainerEnd()}
			return
		case err == nil && !state.Running:
			failures = -1 // some engines say so before the start: ask once more
		case err == nil:
			failures = 0
		default:
			if failures++; failures > 3 {
				p.exit = run.ExecExit{Code: -1, TaskEnded: errors.Is(err, docker.ErrNotFound), Error: err.Error()}
				return
			}
		}
		time.Sleep(exitPoll)
	}
}

func (p *execProc) state() (execState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	s, err := p.exec.State(ctx)
	return execState{s}, err
}

// awaitContainerEnd reports whether the container has ended, or does within containerEndWindow: its other processes are killed first.
func (p *execProc) awaitContainerEnd() bool {
	ctx, cancel := context.WithTimeout(context.Background(), containerEndWindow)
	defer cancel()
	for {
		ctr, err := p.engine.State(ctx, p.container)
		if errors.Is(err, docker.ErrNotFound) || err == nil && !ctr.Running {
			return true
		}
		if backoff.Sleep(ctx, exitPoll) != nil {
			return false
		}
	}
}

// Stdin implements run.ExecProc.
func (p *execProc) Stdin() io.WriteCloser { return execInput{p} }

type execInput struct{ p *execProc }

func (i execInput) Write(b []byte) (int, error) { return i.p.exec.Write(b) }

func (i execInput) Close() error {
	if i.p.tty {
		_, err := i.Write([]byte{4})
		return err
	}
	return i.p.exec.CloseInput()
}

// Stdout implements run.ExecProc.
func (p *execProc) Stdout() io.Reader {
	if p.tty {
		return p.exec
	}
	return p.stdout
}

// Stderr implements run.ExecProc.
func (p *execProc) Stderr() io.Reader {
	if p.tty {
		return nil
	}
	return p.stderr
}

// Resize implements run.ExecProc.
func (p *execProc) Resize(rows, columns int) error {
	if !p.tty || rows <= 0 || columns <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	return p.exec.Resize(ctx, rows, columns)
}

// Signal implements run.ExecProc. It needs an engine on this machine.
func (p *execProc) Signal(name string) error {
	state, err := p.state()
	if err != nil || !state.Running {
		return err
	}
	return signalIn(p.container, state.PID, name)
}

// Wait implements run.ExecProc.
func (p *execProc) Wait() run.ExecExit {
	<-p.done
	return p.exit
}

// Close implements run.ExecProc. With an engine on another machine the command is not ended: it loses its streams.
func (p *execProc) Close() error {
	p.closing.Do(func() {
		_ = p.exec.Close()
		if p.stdout != nil {
			_ = p.stdout.Close()
			_ = p.stderr.Close()
		}
		select {
		case <-p.done:
		default:
			p.hangUp()
		}
		p.wg.Wait()
	})
	return nil
}

// hangUp ends the command.
func (p *execProc) hangUp() {
	for _, name := range []string{"SIGHUP", "SIGKILL"} {
		if err := p.Signal(name); err != nil {
			p.log.Warn("cannot end a command in a container: it ends with its task", slog.String("container", p.container), slog.Any("error", err))
			return
		}
		select {
		case <-p.done:
			return
		case <-time.After(hangUpGrace):
		}
	}
}
