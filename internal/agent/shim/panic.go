package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/wake"
)

// A panic in the work for one attempt fails only that attempt: its processes are killed, its output so far is kept, and the panic and its
// stack are in the shim's log.

// try calls f, and fails the attempt if f panics. It reports whether f returned.
func (a *attempt) try(doing string, f func()) bool {
	err := fault.Run(f)
	if err != nil {
		a.fail(doing, err)
	}
	return err == nil
}

// fail kills the attempt after a panic, and reports an internal error of the worker.
func (a *attempt) fail(doing string, err error) {
	logPanic(a.server.log, err, slog.String("attempt", a.spec.Attempt.String()), slog.String("doing", doing))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.panicked == nil {
		a.panicked = &run.Stopped{
			Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal,
			Message: fmt.Sprintf("the worker's shim failed while %s (%v): this is a bug in Muster; its stack is in shim.log in the worker's data dir", doing, err),
		}
	}
	if a.stopped == nil && !a.ended {
		a.stopped = a.panicked
	}
	a.signal, a.killAt = "", time.Now()
	wake.Set(a.wake)
}

// minimalUpdate returns an update that can be encoded, for an attempt that failed because another one could not be. The task's progress is
// dropped.
func (a *attempt) minimalUpdate() wire.Update {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress, a.unsentProgress = nil, nil
	if a.exit != nil {
		a.exit = &run.Exit{Code: -1, At: a.exit.At, Stopped: a.panicked}
	}
	return wire.Update{Attempt: a.spec.Attempt, LogSize: a.size.Load(), Exit: a.exit}
}

func (a *attempt) OnPanic(err error) { a.fail("reading the task's output", err) }

// async runs f on a goroutine that the server waits for.
func (a *attempt) async(doing string, f func()) { a.server.wg.Go(func() { a.try(doing, f) }) }

// waitExit is workload.Wait. If that panics, it ends the main process and waits for it.
func (a *attempt) waitExit() (x proctree.ExitStatus) {
	if a.try("waiting for the task's end", func() { x = a.workload.Wait() }) {
		return x
	}
	x = proctree.ExitStatus{Code: -1}
	a.try("ending the task", func() { x = a.workload.Abort() })
	return x
}

// abort kills the task after watch has panicked, and waits for its end.
func (a *attempt) abort(exited <-chan proctree.ExitStatus) proctree.ExitStatus {
	a.try("killing the task", a.kill)
	return <-exited
}

// cleanupFailedStart ends what a start left that panicked.
func (a *attempt) cleanupFailedStart() {
	if a.workload != nil {
		a.try("killing the task", a.workload.Kill)
	}
	a.try("emptying the task's control groups", func() { a.killGroups() })
	if a.workload != nil {
		a.waitExit()
		a.try("ending leftover processes of the task", func() { a.workload.Cleanup(false) })
	}
	if a.pumps != nil {
		a.try("reading the task's output", func() { a.pumps.Drain(pipeDrainTimeout) })
	}
	a.try("closing the task's egress proxy", a.closeEgress)
}

func logPanic(log *slog.Logger, err error, attrs ...any) {
	stack := ""
	if p, ok := errors.AsType[*fault.PanicError](err); ok {
		stack = string(p.Stack)
	}
	log.Error("panic", append(attrs, slog.Any("error", err), slog.String("stack", stack))...)
}

// protect calls f for the whole server, and logs a panic.
func (s *server) protect(doing string, f func()) {
	if err := fault.Run(f); err != nil {
		logPanic(s.log, err, slog.String("doing", doing))
	}
}
