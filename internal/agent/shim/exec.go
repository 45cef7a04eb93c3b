package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
)

const (
	maxExecs         = 16               // commands of an attempt
	hangUpGrace      = 5 * time.Second  // between SIGHUP and SIGKILL for a command whose client has gone
	execReplyTimeout = 15 * time.Second // for the shim to start a command
)

// execs are the commands of clients that run in an attempt.
type execs struct {
	// mu is held while a command is started, and while the attempt's control groups are killed: in version 1 the starting thread of this
	// process is in them.
	mu      sync.Mutex
	closed  bool // the attempt ends: no command starts
	running map[*execution]struct{}
}

// execution is a command of a client.
type execution struct {
	child proctree.Child
	pid   run.Pid
	done  chan struct{} // closed when it has been reaped
}

// end ends all commands, and returns when they have ended, or after cleanupTimeout.
func (e *execs) end(t *proctree.Tracker) {
	e.mu.Lock()
	e.closed = true
	var left []*execution
	for x := range e.running {
		left = append(left, x)
	}
	e.mu.Unlock()
	timeout := time.After(cleanupTimeout)
	for _, x := range left {
		x.kill(t)
	}
	for _, x := range left {
		select {
		case <-x.done:
		case <-timeout:
			return
		}
	}
}

// kill kills the command and what it started.
func (x *execution) kill(t *proctree.Tracker) {
	x.child.IfUnreaped(func() { t.Kill(run.Pid{PID: x.pid.PID, StartTicks: x.pid.StartTicks, BootID: x.pid.BootID}) })
}

// serveExec executes a command for a worker, over a connection of its own. It closes files.
func (s *server) serveExec(conn net.Conn, in *wire.FrameReader, files []*os.File, f *wire.ExecFrame) {
	reply := func(r *wire.ExecReply) {
		b, err := wire.AppendFrame(nil, &wire.ToWorker{Exec: r})
		if err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(helloTimeout))
			_, _ = conn.Write(b) // the worker may have gone
		}
	}
	x, a, err := s.startExec(files, f)
	for _, file := range files {
		_ = file.Close()
	}
	if err != nil {
		r := &wire.ExecReply{Error: err.Error()}
		if e, ok := errors.AsType[*run.ExecError](err); ok {
			r.Code = e.Code
		}
		reply(r)
		return
	}
	reply(&wire.ExecReply{Started: true})
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			var f wire.ToShim
			if in.Next(&f) != nil {
				s.hangUp(x)
				return
			}
			if f.Signal != "" {
				x.child.Signal(f.Signal)
			}
		}
	})
	status := x.child.Wait()
	s.tracker.Release(x.pid)
	a.execs.mu.Lock()
	ended := a.execs.closed
	delete(a.execs.running, x)
	a.execs.mu.Unlock()
	close(x.done)
	reply(&wire.ExecReply{Exit: &run.ExecExit{Code: status.Code, Signal: status.Signal, TaskEnded: ended && status.Killed}})
	_ = conn.Close()
	reading.Wait()
}

// hangUp ends a command whose client has gone.
func (s *server) hangUp(x *execution) {
	x.child.Signal("SIGHUP")
	x.child.Signal("SIGCONT")
	select {
	case <-x.done:
	case <-time.After(hangUpGrace):
		x.kill(s.tracker)
	}
}

// startExec starts a command in an attempt, with everything that isolates the attempt's program.
func (s *server) startExec(files []*os.File, f *wire.ExecFrame) (*execution, *attempt, error) {
	a := s.find(f.Attempt)
	if a == nil {
		return nil, nil, errNotRunning(f.Attempt)
	}
	<-a.startDone
	w, ok := a.workload.(*processWorkload)
	switch {
	case a.startErr != nil || !ok:
		return nil, nil, errNotRunning(f.Attempt)
	case len(files) != 3 || len(f.Argv) == 0:
		return nil, nil, &run.ExecError{Message: "the worker's request lacks the command or its standard streams: this is a bug in Muster"}
	}
	st := a.spec
	env := st.Env
	for _, e := range f.Env {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(st.EnvTag, name+"=") {
			env = run.MergeEnv(append([]string(nil), env...), []string{e})
		}
	}
	dir := f.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(st.Dir, dir)
	}
	path, err := run.LookPath(env, dir, f.Argv[0])
	if err != nil {
		return nil, nil, execError(f.Argv[0], err)
	}
	p := isolation.Program{
		Path: path, Argv: f.Argv, Env: env, Dir: dir, Stdin: files[0], Stdout: files[1], Stderr: files[2], TTY: f.TTY,
	}
	a.freezeMu.Lock() // a process of a frozen group cannot be started
	defer a.freezeMu.Unlock()
	a.execs.mu.Lock()
	defer a.execs.mu.Unlock()
	a.mu.Lock()
	frozen, running := a.frozen, a.running && !a.ended
	a.mu.Unlock()
	switch {
	case !running || a.execs.closed:
		return nil, nil, errNotRunning(f.Attempt)
	case frozen:
		return nil, nil, &run.ExecError{Message: fmt.Sprintf("task %s is frozen, because the owner uses the worker's machine: try again later", f.Attempt.Task)}
	case len(a.execs.running) >= maxExecs:
		return nil, nil, &run.ExecError{Message: fmt.Sprintf("task %s has the maximum of %d commands: end one of them, or try again later", f.Attempt.Task, maxExecs)}
	}
	if st.Isolation != nil && st.Isolation.NoNet {
		if p.Network, err = w.network(); err != nil {
			return nil, nil, &run.ExecError{Message: "cannot enter the task's network: " + err.Error()}
		}
		defer func() { _ = p.Network.Close() }()
	}
	if st.Isolation != nil && st.Isolation.IPC != nil {
		if p.Task, err = w.task(); err != nil {
			return nil, nil, &run.ExecError{Message: "cannot enter the task's view of the machine: " + err.Error()}
		}
		defer p.Task.Close()
	}
	if st.Isolation != nil && st.Isolation.User != nil && f.TTY {
		if err := files[0].Chown(int(st.Isolation.User.UID), -1); err != nil {
			return nil, nil, &run.ExecError{Message: "cannot give the terminal to the task's user: " + err.Error()}
		}
	}
	x := &execution{done: make(chan struct{})}
	x.pid, err = s.tracker.Start(st.EnvTag, func() (int, error) {
		x.child.PID, x.child.Handle, err = isolation.Spawn(st.Isolation, p)
		return x.child.PID, err
	})
	if err != nil {
		return nil, nil, execError(f.Argv[0], err)
	}
	if a.execs.running == nil {
		a.execs.running = map[*execution]struct{}{}
	}
	a.execs.running[x] = struct{}{}
	return x, a, nil
}

// network opens the network of the main process.
func (w *processWorkload) network() (f *os.File, err error) {
	err = fs.ErrNotExist
	w.child.IfUnreaped(func() { f, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", w.child.PID)) })
	return f, err
}

// task opens what the main process has entered.
func (w *processWorkload) task() (t *isolation.RunningTask, err error) {
	err = fs.ErrNotExist
	w.child.IfUnreaped(func() { t, err = isolation.OpenTask(w.child.PID) })
	return t, err
}

func errNotRunning(id muster.AttemptID) error {
	return &run.ExecError{Message: fmt.Sprintf("task %s is not running on this worker", id.Task)}
}

// execError is the error of a command that cannot be executed.
func execError(name string, err error) error {
	x := &run.ExecError{Code: run.ExecDenied, Message: fmt.Sprintf("cannot execute %s: %v", name, err)}
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		x.Message = f.Message
		if f.Reason == muster.WorkerInternal {
			x.Code = 0
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		x.Code, x.Message = run.ExecNotFound, fmt.Sprintf("cannot execute %s: there is no such program or folder in the task", name)
	}
	return x
}

// Exec implements run.Execer.
func (c *Client) Exec(ctx context.Context, id muster.AttemptID, x *run.ExecSpec) (run.ExecProc, error) {
	sc, p := c.find(id)
	switch {
	case p == nil:
		return nil, errNotRunning(id)
	case !sc.execs:
		return nil, &run.ExecError{Message: fmt.Sprintf("task %s was started by an earlier build of its worker, which is too old to execute commands: they work in tasks that start after the upgrade", id.Task)}
	}
	return c.exec(ctx, sc, id, x)
}
