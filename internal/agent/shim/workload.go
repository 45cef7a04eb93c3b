package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/isolation/netns"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/containerrun"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/tasklog"
)

// workload is an attempt's main process with all that it starts: a child process with its descendants, or a container.
type workload interface {
	Pid() run.Pid
	// Wait returns when the main process has ended and all of its output is in the pipes. It is called once.
	Wait() proctree.ExitStatus
	// Signal sends a signal by its name, Kill kills all processes. Neither waits.
	Signal(name string)
	Kill()
	Freeze(on bool) error
	// Abort kills all processes after Wait has panicked, and waits for their end.
	Abort() proctree.ExitStatus
	// Cleanup ends the leftover processes, and returns how many survived. emptied says that the attempt has its own control groups, which
	// are empty.
	Cleanup(emptied bool) int
}

// processWorkload is the workload of a task without a container.
type processWorkload struct {
	server *server
	spec   *run.StartSpec
	child  proctree.Child
	pid    run.Pid
}

func (a *attempt) startProcess() error {
	s, st := a.server, a.spec
	out, errs, err := openPipes(newPipe)
	if err != nil {
		return err
	}
	stdin := s.null
	if st.Stdin != "" {
		if stdin, err = os.Open(st.Stdin); err != nil { // every start reads it from its beginning
			return errors.Join(fmt.Errorf("open the standard input: %w", err), out.r.Close(), out.w.Close(), errs.r.Close(), errs.w.Close())
		}
		defer func() { _ = stdin.Close() }()
	}
	w := &processWorkload{server: s, spec: st}
	// The record precedes the process: at first with the tag only.
	s.recordPid(st.Attempt, run.Pid{BootID: s.self.BootID, EnvTag: st.EnvTag})
	s.oom.Refresh(time.Now())
	w.pid, err = s.tracker.Start(st.EnvTag, func() (pid int, err error) {
		w.child.PID, w.child.Handle, err = isolation.Spawn(st.Isolation, isolation.Program{
			Path: st.Path, Argv: st.Argv, Env: st.Env, Dir: st.Dir, Stdin: stdin, Stdout: out.w, Stderr: errs.w,
			OnListener: a.serveEgress, NSInit: s.helper,
		})
		return w.child.PID, err
	})
	_ = out.w.Close()
	_ = errs.w.Close()
	if err != nil {
		_ = out.r.Close()
		_ = errs.r.Close()
		s.deletePid(st.Attempt)
		return startError(st.Argv[0], err)
	}
	s.recordPid(st.Attempt, w.pid)
	a.workload = w
	a.pumps.Start(out.r, tasklog.Stdout)
	a.pumps.Start(errs.r, tasklog.Stderr)
	return nil
}

// startContainer starts the container and reads its output. It is not recorded: if this process is killed, the worker finds it by its label.
func (a *attempt) startContainer() error {
	out, errs, err := openPipes(os.Pipe) // both ends use the runtime's poller
	if err != nil {
		return err
	}
	// Read the output that is printed during the start.
	a.pumps.Start(out.r, tasklog.Stdout)
	a.pumps.Start(errs.r, tasklog.Stderr)
	ctr, err := containerrun.Start(a.spec.Container, a.spec.EnvTag, out.w, errs.w, a.server.timeouts, &containerEvents{attempt: a}, a.server.log)
	if err == nil && a.egress != nil {
		if err = a.serveContainerEgress(ctr.Pid().PID); err != nil {
			ctr.Kill()
			ctr.Wait()
		}
	}
	if err != nil {
		a.pumps.Drain(pipeDrainTimeout)
		return err
	}
	a.workload = &containerWorkload{ctr}
	return nil
}

// containerWorkload is the workload of a task in a container.
type containerWorkload struct{ *containerrun.Container }

// Cleanup does nothing: a container's processes end with it.
func (*containerWorkload) Cleanup(bool) int { return 0 }

func (c *containerWorkload) Abort() proctree.ExitStatus {
	if err := c.Container.Abort(); err != nil {
		return proctree.ExitStatus{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: err.Error()}}
	}
	return proctree.ExitStatus{Code: -1, Killed: true}
}

// containerEvents passes the events of a container to its attempt.
type containerEvents struct {
	*attempt
	step *string // the task's own step, while another one is shown
}

func (c *containerEvents) LogLine(line string) { c.log.WriteLine(line) }

// OnWaiting implements containerrun.EventHandler. It shows the reason as the task's step.
func (c *containerEvents) OnWaiting(reason string) {
	if reason == "" {
		c.OnProgress(muster.Progress{Step: c.step})
		return
	}
	c.mu.Lock()
	c.step = new(string)
	if c.progress != nil && c.progress.Step != nil {
		c.step = c.progress.Step
	}
	c.mu.Unlock()
	c.OnProgress(muster.Progress{Step: &reason})
}

func (c *containerEvents) OnExit() { c.pumps.Unthrottle() }

func (w *processWorkload) Pid() run.Pid { return w.pid }

func (w *processWorkload) Wait() proctree.ExitStatus {
	x := w.child.Wait()
	x.OOM = x.Killed && w.server.oom.Detected()
	return x
}

func (w *processWorkload) Signal(name string) { w.child.Signal(name) }

// Kill implements workload. If the attempt has its own control groups all of its processes are in them; then the descendants of the main
// process need not be searched.
func (w *processWorkload) Kill() {
	if isolation.HasOwnCgroup(w.spec.Isolation) {
		w.child.Kill()
		if isolation.Kill(w.spec.Isolation) == nil {
			return
		}
	}
	w.child.IfUnreaped(func() { w.server.tracker.Kill(w.pid) })
}

func (w *processWorkload) Abort() proctree.ExitStatus {
	w.Kill()
	return w.child.Wait()
}

func (w *processWorkload) Freeze(on bool) error {
	if w.spec.Isolation != nil {
		if done, err := isolation.Freeze(w.spec.Isolation, on); done || err != nil {
			return err
		}
	}
	w.child.IfUnreaped(func() { w.server.tracker.Freeze(w.pid, on) })
	return nil
}

func (w *processWorkload) Cleanup(groupsEmpty bool) int {
	left := 0
	if w.server.reapsOrphans && groupsEmpty {
		w.server.tracker.CleanupLater(w.pid)
	} else {
		left = w.server.tracker.Cleanup(w.pid, cleanupTimeout)
	}
	w.server.deletePid(w.spec.Attempt)
	return left
}

func (s *server) recordPid(id muster.AttemptID, p run.Pid) {
	if err := s.pidFile.Put(id, p); err != nil {
		s.log.Warn("cannot record a task's process: it will survive if its shim is killed", slog.Any("error", err))
	}
}

type pipe struct{ r, w *os.File }

// openPipes opens the pipes for stdout and stderr.
func openPipes(open func() (r, w *os.File, err error)) (out, errs pipe, err error) {
	if out.r, out.w, err = open(); err == nil {
		if errs.r, errs.w, err = open(); err != nil {
			_, _ = out.r.Close(), out.w.Close()
		}
	}
	if err != nil {
		return out, errs, run.Failf(muster.WorkerInternal, "cannot create a pipe for the task's output: %w", err)
	}
	return out, errs, nil
}

func (s *server) deletePid(id muster.AttemptID) {
	if err := s.pidFile.Delete(id); err != nil {
		s.log.Warn("cannot delete the record of an ended process", slog.Any("error", err))
	}
}

func startError(name string, err error) error {
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		return f
	}
	for _, exhausted := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, exhausted) {
			return run.Failf(muster.WorkerInternal, "cannot start %s: the worker has no processes, files or memory left: %w", name, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run.StartFailf(run.ExitNotFound, "cannot execute %s: the interpreter in its first line, or its loader, is not on this worker", name)
	case errors.Is(err, proctree.ErrNoExec):
		return run.StartFailf(run.ExitNotExecutable, "%s is not a program for this machine: a script needs a first line such as #!/bin/sh", name)
	default:
		return run.StartFailf(run.ExitNotExecutable, "cannot execute %s: %w", name, err)
	}
}

// NSInitCommand is the first argument with which this program runs netns.Init.
const NSInitCommand = "helped"

// initEgress creates the task's proxy if it has an allowlist of hosts.
func (a *attempt) initEgress() error {
	var hosts []string
	if c := a.spec.Container; c != nil {
		hosts = c.AllowHosts
	} else if c := a.spec.Isolation; c != nil {
		hosts = c.AllowHosts
	}
	if len(hosts) == 0 {
		return nil
	}
	rules, err := egress.Parse(hosts)
	if err != nil {
		return run.Failf(muster.TaskInvalid, "%w", err)
	}
	a.egress = egress.New(rules, a.log.WriteLine)
	return nil
}

// serveEgress serves the task's proxy at a listener in its network, until its end.
func (a *attempt) serveEgress(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	a.closeEgress = func() {
		cancel()
		<-done
	}
	a.async("serving the task's egress proxy", func() {
		defer close(done)
		a.egress.Serve(ctx, l)
	})
}

// serveContainerEgress serves the proxy of a container, whose program waits for it: see egress.Entrypoint. pid is its main process, 0 if
// that is not on this machine.
func (a *attempt) serveContainerEgress(pid int) error {
	if pid == 0 {
		return run.Failf(muster.EngineFailed, "network: allowlist needs an engine on the worker's machine: the process of the container at %s is not there", a.spec.Container.Engine)
	}
	l, err := netns.ListenIn(pid, a.spec.Container.ID)
	if err != nil {
		return run.Failf(muster.StartFailed, "network: allowlist needs a worker that runs as root: cannot enter the network of the container: %w", err)
	}
	a.serveEgress(l)
	return nil
}
