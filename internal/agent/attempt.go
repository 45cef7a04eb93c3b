package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// reportedState is how much of an attempt's start was sent to the server in this session.
type reportedState uint8

const (
	reportedNone reportedState = iota
	reportedAccepted
	reportedStarted
)

// attempt is one attempt that this worker holds: running, or ended with a report or log bytes that the server does not have. The lock of
// the attemptTable guards it.
type attempt struct {
	id          muster.AttemptID
	table       *attemptTable
	grant       muster.Grant            // reserved until the executor returns
	cancel      context.CancelCauseFunc // nil if it cannot be stopped
	grace       time.Duration           // how long it may continue without contact to the server
	assignedAt  time.Duration           // by attemptTable.clock, as all durations here
	leaseStart  time.Duration           // the last contact before the worker received it
	inline      bool                    // it runs on the session's own goroutine
	endedInTime bool                    // recovered after its process had ended in time: no lease applies
	dropped     bool                    // only its log is still sent

	pid           run.Pid // of its main process, zero until known
	checkpoint    bool    // it can save its state and continue elsewhere
	queued        bool    // in attemptTable.dirty
	reportedState reportedState
	started       muster.Time

	checkpointHash  string // of its checkpoint on the server
	checkpointDirty bool   // checkpointHash was not sent in this session

	mergedProgress *muster.Progress // all progress, merged; sent again in a new session
	progress       *muster.Progress // not sent yet
	progressAt     time.Duration    // when one was last sent
	deferred       bool             // in attemptTable.deferred
	deferredUntil  time.Duration    // when it is due

	report       *muster.Report // once it ended
	size         int            // of the report in a frame, in bytes
	reportSent   bool           // sent in this session
	acked        bool           // on the server's disk, or not wanted
	persisted    bool           // in the report store
	saveDeadline time.Duration  // when the report is to be stored if it is not acknowledged

	logSize   int64 // bytes in the local log
	logSent   int64
	logAcked  int64
	logQueued bool // in attemptTable.logQueue

	logRejected    bool          // the server could not store the last bytes
	logRetryAt     time.Duration // no log bytes are sent before that
	logSentAt      time.Duration // when bytes of it were last put into a frame; 0 for never
	logFailedSince time.Duration // since when the local log is unreadable; 0 if it is readable
}

var _ run.Reporter = (*attempt)(nil)

// running reports whether the attempt has neither ended nor been dropped.
func (at *attempt) running() bool { return at.report == nil && !at.dropped }

// Started implements run.Reporter.
func (at *attempt) Started(started muster.Time) {
	tbl := at.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if !at.running() || at.started != 0 {
		return
	}
	at.started = started
	tbl.queue(at)
}

// Process implements run.Reporter.
func (at *attempt) Process(p run.Pid) {
	at.table.mu.Lock()
	defer at.table.mu.Unlock()
	at.pid = p
}

// Progress implements run.Reporter. Fields that p leaves out keep their value; p's pointers are not changed after the call.
func (at *attempt) Progress(p muster.Progress) {
	tbl := at.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	p.Attempt = at.id
	if p.Step != nil && len(*p.Step) > link.MaxStep {
		step := strings.ToValidUTF8((*p.Step)[:link.MaxStep-len("…")], "") + "…"
		p.Step = &step
	}
	if err := link.CheckProgress(&p); err != nil {
		tbl.log.Warn("invalid progress dropped", slog.String("attempt", at.id.String()), slog.Any("error", err))
		return
	}
	if !at.running() {
		return
	}
	at.progress = progress.Merge(at.progress, &p, maxResentMetrics)
	at.mergedProgress = progress.Merge(at.mergedProgress, &p, maxResentMetrics)
	tbl.queue(at)
}

// maxResentMetrics is how many names of metrics of an attempt are sent again in a new session.
const maxResentMetrics = 100

// LogGrew implements run.Reporter.
func (at *attempt) LogGrew(size int64) {
	tbl := at.table
	tbl.mu.Lock()
	defer tbl.mu.Unlock()
	if tbl.held[at.id] != at || size <= at.logSize {
		return
	}
	at.logSize = size
	tbl.queueLog(at)
}

// stop ends the attempt's execution with a cause: a *run.Stopped, or run.ErrDetach.
func (at *attempt) stop(cause error) {
	if at.cancel != nil {
		at.cancel(cause)
	}
}

// leaseExpired reports whether the attempt has outlived its lease.
func (at *attempt) leaseExpired(now, contact time.Duration) bool {
	return !at.endedInTime && now-max(contact, at.leaseStart) > at.grace
}

// complete fills in the fields that the worker knows, and replaces a report that no frame can carry.
func (at *attempt) complete(report *muster.Report) {
	report.Attempt = at.id
	if report.StartedAt == 0 {
		report.StartedAt = at.started
	}
	if report.FinishedAt == 0 {
		report.FinishedAt = run.Now()
	}
	at.logSize = max(at.logSize, report.LogSize)
	report.LogSize = at.logSize
	if report.Usage != nil && link.CheckUsage(report.Usage) != nil {
		report.Usage = nil // a wrong measurement must not cost the task its result
	}
	if err := link.CheckReport(report); err != nil {
		at.replace(report, muster.WorkerInternal, "bug in the worker: "+err.Error())
	}
	if at.size = reportSize(report); at.size > maxReport {
		at.replace(report, muster.ResultInvalid, fmt.Sprintf("the list of %d artifacts takes %s, a report can carry %s: pack the files into an archive",
			len(report.Artifacts), muster.Size(at.size), muster.Size(maxReport)))
		at.size = reportSize(report)
	}
}

func (at *attempt) replace(report *muster.Report, reason muster.Reason, message string) {
	*report = muster.Report{
		Attempt: at.id, Outcome: muster.AttemptFailed, Reason: reason, Message: message, ExitCode: report.ExitCode,
		Usage: report.Usage, Image: report.Image, LogSize: at.logSize, StartedAt: report.StartedAt, FinishedAt: report.FinishedAt,
	}
}

// maxReport is the maximum size of one report in a frame.
const maxReport = link.MaxFrame * 3 / 4

// reportSize returns the size of a report in a frame: an upper bound for small reports, exact for large ones.
func reportSize(r *muster.Report) int {
	const maxEscaped = 6 // bytes of a character, at most
	n := 400 + len(r.Result) + maxEscaped*(len(r.Message)+len(r.Image))
	for i := range r.Artifacts {
		n += 256 + maxEscaped*(len(r.Artifacts[i].Name)+len(r.Artifacts[i].URL))
	}
	if n < maxReport/16 {
		return n
	}
	b, err := json.Marshal(r)
	if err != nil {
		return n
	}
	return len(b)
}
