package shim

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/egress"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/agent/shim/output"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	pipeDrainTimeout = 2 * time.Second  // for output after the main process has exited
	cleanupTimeout   = 5 * time.Second  // for killed processes to be gone
	stuckAfter       = 30 * time.Second // after SIGKILL a process that is still there is worth a word
)

// attempt is one attempt that a server stands by.
type attempt struct {
	server         *server
	spec           *run.StartSpec
	startClock     time.Duration // when it was started, by run.Clock
	log            *output.Log
	size           atomic.Int64 // of the log
	pumps          *output.Pumps
	events         *output.Events
	points         *run.PointLogger // of what the task reports
	egress         egress.Server    // out of its network, if that is its own
	parseErrorOnce sync.Once        // for the word about what was misunderstood
	wake           chan struct{}    // holds one token if there is something to look at
	startDone      chan struct{}    // closed when begin is done
	idlePolls      atomic.Int32     // looks at $MUSTER_EVENTS in a row in which there was nothing

	// Set before begun is closed, and not changed.
	workload workload
	pid      run.Pid
	started  time.Time
	startErr error // of begin

	freezeMu       sync.Mutex // held while frozen is changed, and what it says is done
	mu             sync.Mutex
	running        bool
	frozen         bool
	ended          bool         // the main process: no reason to stop it counts any more
	forgotten      bool         // nobody wants it any more: it is killed, and dropped at its end
	panicked       *run.Stopped // the first panic that it met
	stopped        *run.Stopped // why it was told to stop
	signal         string       // to be sent
	killAt         time.Time    // zero if it was not told to stop
	progress       *muster.Progress
	unsentProgress *muster.Progress // that the worker was not told
	dirtyIn        *session         // in whose fresh it is
	exit           *run.Exit
	report         *muster.Report
	records        []record // of the worker, to be written
	recordsActive  bool     // by a goroutine
}

// begin starts the process of an attempt.
func (s *server) begin(st *run.StartSpec) (*attempt, error) {
	a := &attempt{server: s, spec: st, startClock: run.BootClock(), wake: make(chan struct{}, 1), startDone: make(chan struct{})}
	defer close(a.startDone)
	a.events = output.NewEvents(st.Events, a)
	a.points = run.NewPointLogger(func(at time.Time, data []byte) {
		a.record(&wire.RecordFrame{Attempt: st.Attempt, Stream: tasklog.Progress, Data: data}, at, nil)
	})
	s.mu.Lock()
	switch {
	case s.attempts[st.Attempt] != nil:
		s.mu.Unlock()
		return nil, run.Failf(muster.WorkerInternal, "%s was started before", st.Attempt)
	case s.closed:
		s.mu.Unlock()
		return nil, errShuttingDown
	}
	s.attempts[st.Attempt] = a
	s.mu.Unlock()
	err := fault.Catch(a.start)
	if _, ok := errors.AsType[*fault.PanicError](err); ok {
		a.fail("it started the task", err)
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

// startReply answers the frame that asked for the start of the attempt, once it has been started or refused.
func (a *attempt) startReply(seq uint64) *wire.ToWorker {
	<-a.startDone
	if a.startErr != nil {
		return &wire.ToWorker{Seq: seq, Failed: failedFrame(a.startErr)}
	}
	return &wire.ToWorker{Seq: seq, Started: &wire.StartedFrame{Pid: a.pid, At: muster.NewTime(a.started)}}
}

// start starts the main process and the reading of its output.
func (a *attempt) start() (err error) {
	s, st := a.server, a.spec
	if a.log, err = output.OpenLog(s.logs, st, a.onLogGrew); err != nil {
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

// supervise waits for the end of the main process, stops it when it is told to, and
// returns when nothing of the task is left and all of its output is in the log.
func (a *attempt) supervise() {
	exited := make(chan proctree.ExitStatus, 1)
	a.server.wg.Go(func() { exited <- a.waitExit() })
	var x proctree.ExitStatus
	if !a.try("it watched the task", func() { x = a.watch(exited) }) {
		x = a.abort(exited)
	}
	a.finish(x)
}

// watch stops the task when it is told to, and returns how the main process ended.
func (a *attempt) watch(exited <-chan proctree.ExitStatus) proctree.ExitStatus {
	if limit := a.spec.Timeout; limit > 0 {
		timer := time.AfterFunc(limit, func() {
			a.stop(&run.Stopped{Outcome: muster.AttemptTimedOut, Reason: muster.Timeout,
				Message: "it ran longer than its timeout of " + muster.Duration(limit).String()}, muster.Kill{})
		})
		defer timer.Stop()
	}
	var (
		kill, stuck <-chan time.Time
		killAt      time.Time // when kill comes
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
			if len(exited) == 0 { // else there is nothing to kill, and both came together
				stuck = time.After(stuckAfter)
				a.kill()
			}
		case <-stuck:
			a.server.log.Error("a killed task does not end: its process waits in the kernel, or its container for its engine",
				slog.String("attempt", a.spec.Attempt.String()), slog.Int("pid", a.pid.PID))
		}
	}
}

// logFailure is why a task is stopped whose log cannot be written.
func logFailure(err error) *run.Stopped {
	s := &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.WorkerInternal, Message: err.Error()}
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		s.Reason = f.Reason
	}
	return s
}

// stop tells the task to end: the first reason counts, and a shorter grace is
// heeded.
func (a *attempt) stop(why *run.Stopped, opts muster.Kill) {
	if opts.Signal == "" {
		opts.Signal = a.spec.Kill.Signal
	}
	if opts.Grace <= 0 {
		opts.Grace = a.spec.Kill.Grace
	}
	killAt := time.Now().Add(opts.Grace.Std())
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.ended:
		return
	case a.stopped == nil:
		a.stopped, a.signal, a.killAt = why, opts.Signal, killAt
	case killAt.Before(a.killAt):
		a.killAt = killAt
	default:
		return
	}
	trySend(a.wake)
}

// forget kills the task at once, and drops the attempt then.
func (a *attempt) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgotten = true
	if a.stopped == nil {
		a.stopped = &run.Stopped{Outcome: muster.AttemptLost, Reason: muster.WorkerLost, Message: "the worker gave it up"}
	}
	a.signal, a.killAt = "", time.Now()
	trySend(a.wake)
}

// sendPendingSignal sends the signal that was asked for, once, and returns by when the task
// is to have ended; zero if it may go on.
func (a *attempt) sendPendingSignal() time.Time {
	a.mu.Lock()
	signal, killAt, frozen := a.signal, a.killAt, a.frozen
	a.signal = ""
	a.mu.Unlock()
	if killAt.IsZero() {
		return killAt
	}
	if frozen { // what stands still cannot end itself
		if err := a.freeze(false); err != nil {
			a.server.log.Warn("a frozen task cannot be thawed to be stopped", slog.String("attempt", a.spec.Attempt.String()), slog.Any("error", err))
		}
	}
	if signal != "" {
		a.pumps.Unthrottle()
		a.workload.Signal(signal)
	}
	return killAt
}

// kill ends all of the task.
func (a *attempt) kill() {
	a.workload.Kill()
	a.killGroups()
}

// killGroups ends all that is in the attempt's control groups, and reports whether it has some of its own, which are
// empty now.
func (a *attempt) killGroups() bool {
	if a.spec.Isolation == nil || len(a.spec.Isolation.Cgroups) == 0 {
		return false
	}
	if err := isolation.Kill(a.spec.Isolation); err != nil {
		a.server.log.Error("the processes of a task do not end, even when killed",
			slog.String("attempt", a.spec.Attempt.String()), slog.Any("error", err))
		return false
	}
	return isolation.HasOwnCgroup(a.spec.Isolation)
}

// finish sees to it that nothing of the task is left, and tells how it ended.
func (a *attempt) finish(x proctree.ExitStatus) {
	at := time.Now()
	s := a.server
	a.mu.Lock()
	a.ended = true
	stopped := a.stopped
	a.mu.Unlock()
	left, groupsEmpty := 0, false
	a.try("it emptied the task's control groups", func() { groupsEmpty = a.killGroups() })
	a.try("it ended what the task left", func() { left = a.workload.Cleanup(groupsEmpty) })
	if left > 0 {
		s.log.Error("processes of a task do not end, even when killed", slog.String("attempt", a.spec.Attempt.String()), slog.Int("processes", left))
	}
	a.try("it closed the task's network", a.egress.Close)
	a.try("it read the task's output", func() { a.pumps.Drain(pipeDrainTimeout) })
	a.try("it read what the task told", func() { a.events.Poll() })
	a.events.Close()
	a.points.Close()
	a.flushRecords()
	a.try("it explained the task's end", func() { a.explainDenial(x.Code) })
	exit := &run.Exit{
		Code: x.Code, Signal: x.Signal, OOM: x.OOM, CPU: x.CPU, MaxRSS: x.MaxRSS,
		Wall: at.Sub(a.started), At: muster.NewTime(at), Survivors: left,
	}
	logErr := a.log.Failure()
	a.mu.Lock()
	exit.Stopped = stopped
	if exit.Stopped == nil {
		exit.Stopped = x.Stopped
	}
	if exit.Stopped == nil {
		exit.Stopped = a.panicked
	}
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

// explainDenial says in the log what the sandbox may have to do with the task's failure.
func (a *attempt) explainDenial(code int) {
	if a.spec.Isolation == nil || code == 0 {
		return
	}
	if line := isolation.ExplainDenial(a.spec.Isolation.Sandbox, a.pumps.Denied()); line != "" {
		a.log.WriteLine(line)
	}
}

// hasEnded reports whether it has ended.
func (a *attempt) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exit != nil
}

// freeze stops all processes of the task, or lets them go on.
func (a *attempt) freeze(on bool) error {
	a.freezeMu.Lock()
	defer a.freezeMu.Unlock()
	a.mu.Lock()
	running, stopping := a.running, a.stopped != nil
	a.mu.Unlock()
	switch {
	case !running:
		return run.Failf(muster.WorkerInternal, "%s does not run", a.spec.Attempt)
	case on && stopping:
		return run.Failf(muster.WorkerInternal, "%s is being stopped", a.spec.Attempt)
	}
	if err := a.workload.Freeze(on); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frozen = on
	trySend(a.wake) // it may have been told to stop meanwhile
	return nil
}

// record has what the worker has to say, or a point, written into the log, after what was recorded before, and then
// calls written, if that is not nil. It does not wait for the disk. A disk that does not keep up
// loses samples and points.
func (a *attempt) record(r *wire.RecordFrame, at time.Time, written func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready := a.running || a.exit != nil && a.report == nil
	if r != nil && r.Stream == tasklog.Progress {
		ready = ready || a.exit == nil // the task may report something before its start is known
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

const doingWrite = "it wrote into the task's log"

const (
	// maxRecords is how many samples and points of an attempt may wait for the disk.
	maxRecords = 64
	// recordsTimeout is how long the end of an attempt waits for them.
	recordsTimeout = 30 * time.Second
)

// record is one that is to be written into the log.
type record struct {
	frame   *wire.RecordFrame // nil for nothing
	at      time.Time
	written func() // nil if nobody waits for it
}

// flushRecords waits until the log has what was to be recorded, as long as its disk may take for one record.
func (a *attempt) flushRecords() {
	done := make(chan struct{})
	a.record(nil, time.Time{}, func() { close(done) })
	select {
	case <-done:
	case <-time.After(recordsTimeout):
	}
}

// writeRecords writes the records that wait, in their order.
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

// saveReport keeps the report.
func (a *attempt) saveReport(r *muster.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report = r
}

// onLogGrew is told the size of the log.
func (a *attempt) onLogGrew(size int64) {
	a.size.Store(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notifyLater()
}

// OnProgress takes a sign of life of the task.
func (a *attempt) OnProgress(p muster.Progress) {
	a.points.Add(&p) // before the lock: it records what is due
	a.mu.Lock()
	defer a.mu.Unlock()
	p.Attempt = a.spec.Attempt
	a.progress, a.unsentProgress = mergeProgress(a.progress, &p), mergeProgress(a.unsentProgress, &p)
	a.notifyLater()
}

// mergeProgress adds what p says to what was said before: up to run.MaxMetrics names.
func mergeProgress(old, p *muster.Progress) *muster.Progress {
	m := &muster.Progress{}
	if old != nil {
		*m = *old
		m.Metrics = maps.Clone(old.Metrics)
	}
	m.Attempt = p.Attempt
	if p.Progress != nil {
		m.Progress = p.Progress
	}
	if p.Step != nil {
		m.Step = p.Step
	}
	for name, v := range p.Metrics {
		if m.Metrics == nil {
			m.Metrics = make(map[string]float64, len(p.Metrics))
		}
		if _, known := m.Metrics[name]; known || len(m.Metrics) < run.MaxMetrics {
			m.Metrics[name] = v
		}
	}
	return m
}

// OnParseError says once that something meant for Muster was not understood.
func (a *attempt) OnParseError(what string, err error) {
	a.parseErrorOnce.Do(func() { a.log.WriteLine(fmt.Sprintf("%s was not understood: %v (said once)", what, err)) })
}

// notify has the worker told at the next flush that there is news, and returns the session
// with it, nil for none. The lock is held.
func (a *attempt) notify() *session {
	ss := a.server.worker.Load()
	if ss != nil && a.dirtyIn != ss {
		a.dirtyIn = ss
		ss.markDirty(a)
	}
	return ss
}

// notifyLater is tell for what may wait a little. The lock is held.
func (a *attempt) notifyLater() {
	if ss := a.notify(); ss != nil {
		ss.flushLater()
	}
}

// takeUpdate is what ss has not been told.
func (a *attempt) takeUpdate(ss *session) wire.Update {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := wire.Update{Attempt: a.spec.Attempt, Progress: a.unsentProgress, LogSize: a.size.Load(), Exit: a.exit}
	if a.dirtyIn == ss {
		a.dirtyIn, a.unsentProgress = nil, nil
	}
	return n
}

// snapshot is what a new worker is told; nil while the process is being started.
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

// sendSnapshot tells a new worker of the attempt, if it is held. If that cannot be encoded the attempt fails, and the worker is
// told so.
func (a *attempt) sendSnapshot(ss *session) {
	h := a.snapshot()
	if h == nil {
		return
	}
	err := ss.out.Send(&wire.ToWorker{Snapshot: h})
	if !errors.Is(err, wire.ErrEncode) { // the worker has it, or is gone
		return
	}
	a.fail(doingNotify, err)
	a.minimalUpdate()
	if h = a.snapshot(); h != nil {
		_ = ss.out.Send(&wire.ToWorker{Snapshot: h}) // a worker that is gone needs none
	}
}
