package shim

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/kin"
	"github.com/muster-dev/muster/internal/agent/shim/vessel"
	"github.com/muster-dev/muster/internal/tasklog"
)

// body is an attempt's main process with all that it starts: a child of this process and
// its kin, or a container.
type body interface {
	Pid() run.Pid
	// Wait returns when the main process has ended and all that it printed is in its pipes.
	// It is called once.
	Wait() kin.Ended
	// Signal sends a signal by its name, Kill ends all. Neither waits.
	Signal(name string)
	Kill()
	Freeze(on bool) error
	// Abandon ends all after Wait has panicked, and waits for it.
	Abandon() kin.Ended
	// Bury ends what the main process left, and returns how many processes would not go. emptied says that
	// the attempt has control groups of its own, and nothing is in them.
	Bury(emptied bool) int
}

// process is the body of a task that is no container.
type process struct {
	server *server
	s      *run.Start
	child  kin.Child
	pid    run.Pid
}

// spawn starts a process and the reading of its output.
func (a *attempt) spawn() error {
	s, st := a.server, a.s
	out, err := openPipe()
	if err != nil {
		return err
	}
	errs, err := openPipe()
	if err != nil {
		return errors.Join(err, out.close())
	}
	b := &process{server: s, s: st}
	// Before there is a process there is a record of it, and be it only by its mark.
	s.notePid(st.Attempt, run.Pid{BootID: s.self.BootID, Mark: st.Mark})
	s.oom.Refresh(time.Now())
	b.pid, err = s.kin.Start(st.Mark, func() (pid int, err error) {
		b.child.PID, b.child.Handle, err = limit.Spawn(st.Confine, limit.Program{
			Path: st.Path, Argv: st.Argv, Env: st.Env, Dir: st.Dir, Stdin: s.null, Stdout: out.w, Stderr: errs.w,
			Gate: a.letOut, Helper: s.helper,
		})
		return b.child.PID, err
	})
	_ = out.w.Close()
	_ = errs.w.Close()
	if err != nil {
		_ = out.r.Close()
		_ = errs.r.Close()
		s.forgetPid(st.Attempt)
		return startError(st.Argv[0], err)
	}
	s.notePid(st.Attempt, b.pid)
	a.body = b
	a.pumps.Start(out.r, tasklog.Stdout)
	a.pumps.Start(errs.r, tasklog.Stderr)
	return nil
}

// sail starts a container and the reading of its output. It is not recorded: no process
// of it is ours to kill, should this one be killed, and the worker knows it by its label.
func (a *attempt) sail() error {
	var p [2]pipe
	for i := range p {
		var err error
		if p[i].r, p[i].w, err = os.Pipe(); err != nil { // both of its ends are waited for by the runtime
			_ = p[0].close()
			return run.Failf(muster.WorkerInternal, "no pipe for the task's output: %w", err)
		}
	}
	// What it prints while it is being started waits for nothing.
	a.pumps.Start(p[0].r, tasklog.Stdout)
	a.pumps.Start(p[1].r, tasklog.Stderr)
	v, err := vessel.Start(a.s.Container, a.s.Mark, p[0].w, p[1].w, a.server.patience, &crew{attempt: a}, a.server.log)
	if err == nil && a.way.Planned() {
		if err = a.letContainerOut(v.Pid().PID); err != nil {
			v.Kill()
			v.Wait()
		}
	}
	if err != nil {
		a.pumps.Finish(pipesWait)
		return err
	}
	a.body = &container{v}
	return nil
}

// container is the body of a task that is one.
type container struct{ *vessel.Vessel }

// Bury does nothing: what a container left ended with it.
func (*container) Bury(bool) int { return 0 }

// Abandon implements body.
func (c *container) Abandon() kin.Ended {
	err := c.Vessel.Abandon()
	if err == nil {
		return kin.Ended{Code: -1, Killed: true}
	}
	return kin.Ended{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: err.Error()}}
}

// crew tells an attempt what happens to its container.
type crew struct {
	*attempt
	step *string // the task's own, while another one is shown
}

// Say implements vessel.Hears.
func (c *crew) Say(line string) { c.log.Say(line) }

// Waits implements vessel.Hears. The step that is shown meanwhile is not the task's.
func (c *crew) Waits(what string) {
	if what == "" {
		c.Said(muster.Progress{Step: c.step})
		return
	}
	c.mu.Lock()
	c.step = new(string)
	if c.progress != nil && c.progress.Step != nil {
		c.step = c.progress.Step
	}
	c.mu.Unlock()
	c.Said(muster.Progress{Step: &what})
}

// Hurry implements vessel.Hears.
func (c *crew) Hurry() { c.pumps.Fast() }

// Pid implements body.
func (b *process) Pid() run.Pid { return b.pid }

// Wait implements body.
func (b *process) Wait() kin.Ended {
	x := b.child.Wait()
	x.OOM = x.Killed && b.server.oom.Happened()
	return x
}

// Signal implements body.
func (b *process) Signal(name string) { b.child.Signal(name) }

// Kill implements body. With control groups of its own all of the task is in them: then it does
// not look for what descends from the main process.
func (b *process) Kill() {
	if limit.Own(b.s.Confine) {
		b.child.Kill()
		if limit.Kill(b.s.Confine) == nil {
			return
		}
	}
	b.child.Unreaped(func() { b.server.kin.Kill(b.pid) })
}

// Abandon implements body.
func (b *process) Abandon() kin.Ended {
	b.Kill()
	return b.child.Wait()
}

// Freeze implements body.
func (b *process) Freeze(on bool) error {
	if b.s.Confine != nil {
		if done, err := limit.Freeze(b.s.Confine, on); done || err != nil {
			return err
		}
	}
	b.child.Unreaped(func() { b.server.kin.Freeze(b.pid, on) })
	return nil
}

// Bury implements body.
func (b *process) Bury(emptied bool) int {
	left := 0
	if b.server.sweeps && emptied {
		b.server.kin.Emptied(b.pid)
	} else {
		left = b.server.kin.Ended(b.pid, sweepWait)
	}
	b.server.forgetPid(b.s.Attempt)
	return left
}

func (s *server) notePid(id muster.AttemptID, p run.Pid) {
	if err := s.pids.Put(id, p); err != nil {
		s.log.Warn("a task's process is not recorded: if its shim is killed it stays", slog.Any("error", err))
	}
}

// pipe is one for output.
type pipe struct{ r, w *os.File }

func openPipe() (p pipe, err error) {
	if p.r, p.w, err = newPipe(); err != nil {
		return p, run.Failf(muster.WorkerInternal, "no pipe for the task's output: %w", err)
	}
	return p, nil
}

func (p pipe) close() error { return errors.Join(p.r.Close(), p.w.Close()) }

func (s *server) forgetPid(id muster.AttemptID) {
	if err := s.pids.Drop(id); err != nil {
		s.log.Warn("the record of an ended process stays", slog.Any("error", err))
	}
}

// startError turns what the system said into a sentence.
func startError(name string, err error) error {
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		return f
	}
	for _, lack := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, lack) {
			return run.Failf(muster.WorkerInternal, "the worker cannot start %s, it has too few processes, files or memory left: %w", name, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run.Failf(muster.StartFailed, "%s cannot be executed: the interpreter that its first line names, or its loader, is not on this worker", name)
	case errors.Is(err, kin.ErrNoExec):
		return run.Failf(muster.StartFailed, "%s is no program for this machine: a script needs a first line such as #!/bin/sh", name)
	default:
		return run.Failf(muster.StartFailed, "%s cannot be executed: %w", name, err)
	}
}
