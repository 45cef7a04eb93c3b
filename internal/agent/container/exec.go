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
)

// hangUpGrace is the time between SIGHUP and SIGKILL for a command whose client has gone.
const hangUpGrace = 5 * time.Second

// exitPoll is the pause between checks of a command whose output has ended.
const exitPoll = 50 * time.Millisecond

// Exec executes a command in a running container, as its user. The engine ends it with the container.
func (c *Containers) Exec(ctx context.Context, ctr *run.Container, x *run.ExecSpec) (run.ExecProc, error) {
	// Not the context of the request: it would end the connection.
	exec, err := c.cfg.Engine.Exec(context.WithoutCancel(ctx), ctr.ID, &docker.ExecOptions{
		Argv: x.Argv, Env: x.Env, Dir: x.Dir, TTY: x.TTY, Stdin: x.Stdin, Rows: x.Rows, Columns: x.Columns,
	})
	if err != nil {
		return nil, explainExec(x.Argv[0], err)
	}
	p := &execProc{exec: exec, container: ctr.ID, tty: x.TTY, timeout: c.timeouts.request, log: c.cfg.Log, done: make(chan struct{})}
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

// explainExec is the error of a command that did not start.
func explainExec(name string, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "no such file or directory"), strings.Contains(text, "executable file not found"):
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

// await waits until the command has ended: engines have no request that does.
func (p *execProc) await() {
	defer close(p.done)
	for failures := 0; ; {
		state, err := p.state()
		switch {
		case err == nil && !state.Running && (state.PID != 0 || state.ExitCode != 0 || failures < 0):
			p.exit = run.ExecExit{Code: state.ExitCode}
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

func (p *execProc) state() (docker.ExecState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	return p.exec.State(ctx)
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
