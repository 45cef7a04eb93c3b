package shim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/output"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	pipeDrainTimeout = 2 * time.Second  // for output after the main process has exited
	cleanupTimeout   = 5 * time.Second  // for killed processes to exit
	stuckAfter       = 30 * time.Second // after SIGKILL, a process that still runs is logged
)

type attempt struct {
	server         *server
	spec           *run.StartSpec
	startClock     time.Duration // when it was started, by bootclock.Now
	log            *output.Log
	size           atomic.Int64 // of the log
	pumps          *output.Pumps
	events         *output.Events
	points         *progress.PointLogger // of the task's progress
	redactor       *redact.Redactor      // nil for a task without secrets
	egress         *egress.Proxy         // with network: allowlist, else nil
	closeEgress    func()                // closes the task's connections, and returns when they have ended
	parseErrorOnce sync.Once             // the log mentions only the first invalid event
	wake           chan struct{}         // holds one token if watch has something to check
	startDone      chan struct{}         // closed when begin returns
	idlePolls      atomic.Int32          // consecutive polls of $MUSTER_EVENTS that found nothing

	// Set before startDone is closed, and not changed afterwards.
	workload workload
	pid      run.Pid
	started  time.Time
	startErr error // of begin

	execs          execs      // commands of clients
	freezeMu       sync.Mutex // held while processes are frozen or continued, and frozen is set
	mu             sync.Mutex
	running        bool
	frozen         bool
	ended          bool         // the main process has ended: later reasons to stop do not count
	forgotten      bool         // it is killed, and dropped at its end
	panicked       *run.Stopped // the first panic
	stopped        *run.Stopped // why it is to stop
	signal         string       // to send
	killAt         time.Time    // zero if it is not to stop
	progress       *muster.Progress
	unsentProgress *muster.Progress // that the worker does not have
	dirtyIn        *session         // whose dirty list has it
	exit           *run.Exit
	report         *muster.Report
	records        []record // to be written
	recordsActive  bool     // a goroutine writes them
}

func (s *server) begin(st *run.StartSpec) (*attempt, error) {
	a := &attempt{server: s, spec: st, startClock: bootclock.Now(), wake: make(chan struct{}, 1), startDone: make(chan struct{}), closeEgress: func() {}}
	defer close(a.startDone)
	a.points = progress.NewPointLogger(func(at time.Time, data []byte) {
		a.record(&wire.RecordFrame{Attempt: st.Attempt, Stream: tasklog.Progress, Data: data}, at, nil)
	})
	s.mu.Lock()
	switch {
	case s.attempts[st.Attempt] != nil:
		s.mu.Unlock()
		return nil, run.Failf(muster.WorkerInternal, "attempt %s has already been started", st.Attempt)
	case s.closed:
		s.mu.Unlock()
		return nil, errShuttingDown
	}
	s.attempts[st.Attempt] = a
	s.mu.Unlock()
	err := fault.Catch(a.start)
	if _, ok := errors.AsType[*fault.PanicError](err); ok {
		a.fail("starting the task", err)
		a.cleanupFailedStart()
		err = &run.TaskError{Reason: a.panicked.Reason, Message: a.panicked.Message, Err: err}
	}
	if err != nil {
		s.mu.Lock()
		delete(s.attempts, st.Attempt)
		s.mu.Unlock()
		a.startErr = err
		return nil, err
	}
	return a, nil
}

// startReply returns the reply to the frame that asked for the start, once the attempt has started or failed to.
func (a *attempt) startReply(seq uint64) *wire.ToWorker {
	<-a.startDone
	if a.startErr != nil {
		return &wire.ToWorker{Seq: seq, Failed: failedFrame(a.startErr)}
	}
	return &wire.ToWorker{Seq: seq, Started: &wire.StartedFrame{Pid: a.pid, At: muster.NewTime(a.started)}}
}

func (a *attempt) start() (err error) {
	s, st := a.server, a.spec
	a.redactor = redact.New(st.Redact)
	a.events = output.NewEvents(st.Events, a, a.redactor)
	if a.log, err = output.OpenLog(s.logs, st, a.redactor, a.onLogGrew); err != nil {
		return err
	}
	a.size.Store(st.LogSize)
	if err := a.initEgress(); err != nil {
		return err
	}
	a.pumps = output.NewPumps(a.log, a, &s.buffers, st.LogRate)
	if st.Container != nil {
		err = a.startContainer()
	} else {
		err = a.startProcess()
	}
	if err != nil {
		return err
	}
	a.pid, a.started = a.workload.Pid(), time.Now()
	a.mu.Lock()
	a.running = true
	a.mu.Unlock()
	return nil
}

// supervise waits for the end of the main process and stops it when asked. It returns when no process of the task is left and all output is
// in the log.
func (a *attempt) supervise() {
	exited := make(chan proctree.ExitStatus, 1)
	a.server.wg.Go(func() { exited <- a.waitExit() })
	var x proctree.ExitStatus
	if !a.try("watching the task", func() { x = a.watch(exited) }) {
		x = a.abort(exited)
	}
	a.finish(x)
}

// watch stops the task when asked, and returns how the main process ended.
func (a *attempt) watch(exited <-chan proctree.ExitStatus) proctree.ExitStatus {
	if limit := a.spec.Timeout; limit > 0 {
		timer := time.AfterFunc(limit, func() {
			a.stop(&run.Stopped{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout,
				Message: "exceeded its timeout of " + muster.Duration(limit).String()}, muster.Kill{})
		})
		defer timer.Stop()
	}
	var (
		kill, stuck <-chan time.Time
		killAt      time.Time // when kill fires
		logFailed   = a.log.Failed()
	)
	for {
		select {
		case x := <-exited:
			return x
		case <-a.wake:
			if a.events.Poll() {
				a.idlePolls.Store(0)
			} else {
				a.idlePolls.Add(1)
			}
			if at := a.sendPendingSignal(); !at.Equal(killAt) {
				killAt, kill = at, time.After(time.Until(at))
			}
		case <-logFailed:
			logFailed = nil
			a.stop(logFailure(a.log.Failure()), muster.Kill{})
			a.kill()
		case <-kill:
			kill = nil
			if len(exited) == 0 { // else the process has just exited
				stuck = time.After(stuckAfter)
				a.kill()
			}
		case <-stuck:
			a.server.log.Error("killed task does not exit: its process is blocked in the kernel, or its container waits for the engine",
				slog.String("attempt", a.spec.Attempt.String()), slog.Int("pid", a.pid.PID))
		}
	}
}

// logFailure returns the reason to stop a task whose log cannot be written.
func logFailure(err error) *run.Stopped {
	s := &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		s.Reason = f.Reason
	}
	return s
}

// stop asks the task to end: the first reason counts, and a later, shorter grace applies.
func (a *attempt) stop(why *run.Stopped, opts muster.Kill) {
	signal := cmp.Or(opts.Signal, a.spec.Kill.Signal)
	killAt := time.Now().Add(opts.Grace.Or(a.spec.Kill.Grace).Std())
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return
	case a.stopped == nil:
		a.stopped, a.signal, a.killAt = why, signal, killAt
	case killAt.Before(a.killAt):
		a.killAt = killAt
	default:
		return
	}
	wake.Set(a.wake)
}

// forget kills the task at once, and drops the attempt at its end.
func (a *attempt) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgotten = true
	if a.stopped == nil {
		a.stopped = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the worker dropped the attempt"}
	}
	a.signal, a.killAt = "", time.Now()
	wake.Set(a.wake)
}

// sendPendingSignal sends the signal of stop, once, and returns when the task is to be killed; zero for never.
func (a *attempt) sendPendingSignal() time.Time {
	a.mu.Lock()
	signal, killAt, frozen := a.signal, a.killAt, a.frozen
	a.signal = ""
	a.mu.Unlock()
	if killAt.IsZero() {
		return killAt
	}
	if frozen { // a frozen process cannot handle a signal
		if err := a.freeze(false); err != nil {
			a.server.log.Warn("cannot thaw a task to stop it", slog.String("attempt", a.spec.Attempt.String()), slog.Any("error", err))
		}
	}
	if signal != "" {
		a.pumps.Unthrottle()
		a.workload.Signal(signal)
	}
	return killAt
}

func (a *attempt) kill() {
	a.execs.mu.Lock() // no command is being started: see execs
	defer a.execs.mu.Unlock()
	a.workload.Kill()
	a.killGroups()
}

// killGroups kills all processes in the attempt's control groups. It reports whether the attempt has its own groups, which are empty then.
func (a *attempt) killGroups() bool {
	if a.spec.Isolation == nil || len(a.spec.Isolation.Cgroups) == 0 {
		return false
	}
	if err := isolation.Kill(a.spec.Isolation); err != nil {
		a.server.log.Error("processes of a task survive SIGKILL",
			slog.String("attempt", a.spec.Attempt.String()), slog.Any("error", err))
		return false
	}
	return isolation.HasOwnCgroup(a.spec.Isolation)
}

// finish ends the processes that are left, and records how the task ended.
func (a *attempt) finish(x proctree.ExitStatus) {
	at := time.Now()
	s := a.server
	a.mu.Lock()
	a.ended = true
	stopped := a.stopped
	a.mu.Unlock()
	left, groupsEmpty := 0, false
	a.try("ending the commands of clients", func() { a.execs.end(s.tracker) })
	a.try("emptying the task's control groups", func() { groupsEmpty = a.killGroups() })
	a.try("ending leftover processes of the task", func() { left = a.workload.Cleanup(groupsEmpty) })
	if left > 0 {
		s.log.Error("processes of a task survive SIGKILL", slog.String("attempt", a.spec.Attempt.String()), slog.Int("processes", left))
	}
	a.try("closing the task's egress proxy", a.closeEgress)
	a.try("reading the task's output", func() { a.pumps.Drain(pipeDrainTimeout) })
	a.try("reading the task's events", func() { a.events.Poll() })
	a.events.Close()
	a.points.Close()
	a.flushRecords()
	a.try("explaining the task's failure", func() { a.explainDenial(x.Code) })
	exit := &run.Exit{
		Code: x.Code, Signal: x.Signal, OOM: x.OOM, CPU: x.CPU, MaxRSS: x.MaxRSS,
		Wall: at.Sub(a.started), At: muster.NewTime(at), Survivors: left,
	}
	logErr := a.log.Failure()
	a.mu.Lock()
	exit.Stopped = cmp.Or(stopped, x.Stopped, a.panicked)
	if exit.Stopped == nil && logErr != nil {
		exit.Stopped = logFailure(logErr)
	}
	a.exit, a.running = exit, false
	forgotten := a.forgotten
	ss := a.notify()
	a.mu.Unlock()
	if ss != nil {
		ss.out.Flush()
	}
	if forgotten {
		s.forget([]muster.AttemptID{a.spec.Attempt})
	}
}

// explainDenial writes to the log how the sandbox may have caused the task's failure.
func (a *attempt) explainDenial(code int) {
	if a.spec.Isolation == nil || code == 0 {
		return
	}
	if line := isolation.ExplainDenial(a.spec.Isolation.Sandbox, a.pumps.Denied()); line != "" {
		a.log.WriteLine(line)
	}
}

func (a *attempt) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exit != nil
}

// freeze stops all processes of the task, or continues them.
func (a *attempt) freeze(on bool) error {
	a.freezeMu.Lock()
	defer a.freezeMu.Unlock()
	a.mu.Lock()
	running, stopping := a.running, a.stopped != nil
	a.mu.Unlock()
	switch {
	case !running:
		return run.Failf(muster.WorkerInternal, "attempt %s is not running", a.spec.Attempt)
	case on && stopping:
		return run.Failf(muster.WorkerInternal, "attempt %s is being stopped", a.spec.Attempt)
	}
	if err := a.workload.Freeze(on); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frozen = on
	wake.Set(a.wake) // a signal may be pending
	return nil
}

// record queues a record of the worker, or a point, for the log, after all earlier ones, and then calls written unless it is nil. It does not
// wait for the disk. A slow disk loses samples and points.
func (a *attempt) record(r *wire.RecordFrame, at time.Time, written func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready := a.running || a.exit != nil && a.report == nil
	if r != nil && r.Stream == tasklog.Progress {
		ready = ready || a.exit == nil // the task may report progress before its start is complete
	}
	if !ready {
		r = nil
	}
	if written == nil && (r == nil || len(a.records) >= maxRecords) {
		return
	}
	a.records = append(a.records, record{r, at, written})
	if !a.recordsActive {
		a.recordsActive = true
		a.async(doingWrite, a.writeRecords)
	}
}

const doingWrite = "writing the task's log"

const (
	// maxRecords is the maximum of samples and points of an attempt that wait for the disk.
	maxRecords = 64
	// recordsTimeout is how long the end of an attempt waits for its records.
	recordsTimeout = 30 * time.Second
)

type record struct {
	frame   *wire.RecordFrame // nil for nothing
	at      time.Time
	written func() // may be nil
}

// flushRecords waits until all queued records are in the log, at most recordsTimeout.
func (a *attempt) flushRecords() {
	done := make(chan struct{})
	a.record(nil, time.Time{}, func() { close(done) })
	select {
	case <-done:
	case <-time.After(recordsTimeout):
	}
}

// writeRecords writes the queued records in order.
func (a *attempt) writeRecords() {
	for {
		a.mu.Lock()
		records := a.records
		a.records = nil
		a.recordsActive = len(records) > 0
		a.mu.Unlock()
		if len(records) == 0 {
			return
		}
		for _, r := range records {
			if r.frame != nil && len(r.frame.Data) > 0 {
				a.try(doingWrite, func() { a.log.Record(r.frame.Stream, r.at, r.frame.Data) })
			}
			if r.written != nil {
				r.written()
			}
		}
	}
}

func (a *attempt) saveReport(r *muster.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report = r
}

func (a *attempt) onLogGrew(size int64) {
	a.size.Store(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyLater()
}

func (a *attempt) OnProgress(p muster.Progress) {
	if p.Step != nil {
		p.Step = new(a.redactor.String(*p.Step)) // in a line of output it may have had escapes, as names may
	}
	maps.DeleteFunc(p.Metrics, func(name string, _ float64) bool { return a.redactor.String(name) != name })
	a.points.Add(&p) // before the lock: it may call record
	a.mu.Lock()
	defer a.mu.Unlock()
	p.Attempt = a.spec.Attempt
	a.progress, a.unsentProgress = progress.Merge(a.progress, &p, progress.MaxMetrics), progress.Merge(a.unsentProgress, &p, progress.MaxMetrics)
	a.notifyLater()
}

// OnParseError implements output.Listener. It writes to the log once.
func (a *attempt) OnParseError(what string, err error) {
	a.parseErrorOnce.Do(func() { a.log.WriteLine(fmt.Sprintf("%s is invalid: %v (reported once)", what, err)) })
}

// notify marks the attempt as changed for the worker's next flush, and returns the session, nil for none. The lock is held.
func (a *attempt) notify() *session {
	ss := a.server.worker.Load()
	if ss != nil && a.dirtyIn != ss {
		a.dirtyIn = ss
		ss.markDirty(a)
	}
	return ss
}

// notifyLater is notify with a flush after flushDelay. The lock is held.
func (a *attempt) notifyLater() {
	if ss := a.notify(); ss != nil {
		ss.flushLater()
	}
}

// takeUpdate returns what ss has not been sent.
func (a *attempt) takeUpdate(ss *session) wire.Update {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := wire.Update{Attempt: a.spec.Attempt, Progress: a.unsentProgress, LogSize: a.size.Load(), Exit: a.exit}
	if a.dirtyIn == ss {
		a.dirtyIn, a.unsentProgress = nil, nil
	}
	return n
}

// snapshot returns what a new worker is sent; nil while the process is being started.
func (a *attempt) snapshot() *wire.SnapshotFrame {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.running && a.exit == nil || a.forgotten {
		return nil
	}
	a.unsentProgress = nil
	return &wire.SnapshotFrame{
		Recovered: run.Recovered{
			Start: *a.spec, Started: muster.NewTime(a.started), PID: a.pid, Exit: a.exit, LogSize: a.size.Load(), Frozen: a.frozen, Report: a.report,
		},
		Progress: a.progress,
	}
}

// sendSnapshot sends the attempt to a new worker, if it is held. If it cannot be encoded the attempt fails, and that is sent.
func (a *attempt) sendSnapshot(ss *session) {
	h := a.snapshot()
	if h == nil {
		return
	}
	err := ss.out.Send(&wire.ToWorker{Snapshot: h})
	if !errors.Is(err, wire.ErrEncode) { // sent, or the connection is closed
		return
	}
	a.fail(doingNotify, err)
	a.minimalUpdate()
	if h = a.snapshot(); h != nil {
		_ = ss.out.Send(&wire.ToWorker{Snapshot: h}) // the connection may be closed
	}
}
