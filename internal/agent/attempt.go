package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/link"
)

// reportedState is how much of an attempt's beginning the server was told in this
// session.
type reportedState uint8

const (
	reportedNone reportedState = iota
	reportedAccepted
	reportedStarted
)

// attempt is one attempt that this worker holds: running, or ended with a report
// or log bytes that the server does not have. The roster's lock guards it all.
type attempt struct {
	id          muster.AttemptID
	table       *attemptTable
	grant       muster.Grant            // taken until the executor returns
	cancel      context.CancelCauseFunc // nil if nothing can be stopped
	grace       time.Duration           // how long it may go on while the server is away
	assignedAt  time.Duration           // when it was assigned, by the roster's clock
	leaseStart  time.Duration           // when its lease began: the last contact before the worker received it
	inline      bool                    // it runs on the session's own goroutine
	endedInTime bool                    // its process had ended in time when this life of the worker found it: no lease
	dropped     bool                    // forgotten: nothing is said of it any more but its log

	pid           run.Pid // of its main process, once that is known
	checkpoint    bool    // it can save its state and go on elsewhere
	queued        bool    // in roster.talk
	reportedState reportedState
	started       muster.Time

	checkpointHash  string // the hash of its checkpoint on the server
	checkpointDirty bool   // that was not said in this session

	mergedProgress *muster.Progress // all that was reported, merged; sent again in a new session
	progress       *muster.Progress // not sent yet
	progressAt     time.Duration    // when one was last sent
	deferred       bool             // in roster.later
	deferredUntil  time.Duration    // when it is its turn there

	report       *muster.Report // once it ended
	size         int            // that the report takes in a frame
	reportSent   bool           // sent in this session
	acked        bool           // on the server's disk, or unwanted
	persisted    bool           // in the keep
	saveDeadline time.Duration  // when it is to be in the keep if it is still held

	logSize   int64 // bytes in the local log
	logSent   int64
	logAcked  int64
	logQueued bool // in roster.logs

	logRejected    bool          // the server could not store what was sent last
	logRetryAt     time.Duration // nothing of the log is sent before that
	logFailedSince time.Duration // since when the local log cannot be read; 0 if it can
}

var _ run.Reporter = (*attempt)(nil)

// running reports whether the attempt has neither ended nor been forgotten.
func (at *attempt) running() bool { return at.report == nil && !at.dropped }

// Started implements run.Sink.
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

// Process implements run.Sink.
func (at *attempt) Process(p run.Pid) {
	at.table.mu.Lock()
	defer at.table.mu.Unlock()
	at.pid = p
}

// Progress implements run.Sink. What p leaves out stays as it was; what p points
// to is no longer changed.
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
		tbl.log.Warn("a progress is dropped", slog.String("attempt", at.id.String()), slog.Any("error", err))
		return
	}
	if !at.running() {
		return
	}
	at.progress = mergeProgress(at.progress, &p)
	at.mergedProgress = mergeProgress(at.mergedProgress, &p)
	tbl.queue(at)
}

// maxResentMetrics is how many names of metrics of an attempt are sent again in a new session.
const maxResentMetrics = 100

// mergeProgress adds what p has to old, which may be nil and is changed.
func mergeProgress(old, p *muster.Progress) *muster.Progress {
	if old == nil {
		old = &muster.Progress{Attempt: p.Attempt}
	}
	if p.Progress != nil {
		old.Progress = p.Progress
	}
	if p.Step != nil {
		old.Step = p.Step
	}
	for name, v := range p.Metrics {
		if old.Metrics == nil {
			old.Metrics = make(map[string]float64, len(p.Metrics))
		}
		if _, known := old.Metrics[name]; known || len(old.Metrics) < maxResentMetrics {
			old.Metrics[name] = v
		}
	}
	if len(p.Artifacts) > 0 {
		old.Artifacts = p.Artifacts
	}
	return old
}

// LogGrew implements run.Sink.
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

// stop ends the attempt's execution for the given cause.
func (at *attempt) stop(cause *run.Stopped) { at.cancelWith(cause) }

func (at *attempt) cancelWith(cause error) {
	if at.cancel != nil {
		at.cancel(cause)
	}
}

// leaseExpired reports whether the attempt has outlived its lease.
func (at *attempt) leaseExpired(now, contact time.Duration) bool {
	return !at.endedInTime && now-max(contact, at.leaseStart) > at.grace
}

// complete fills in what the roster knows better than the executor, and puts
// another report in the place of one that no frame could carry.
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
		report.Usage = nil // a meter gone wild costs no task its result
	}
	if err := link.CheckReport(report); err != nil {
		at.replace(report, muster.WorkerInternal, "a bug of the worker: "+err.Error())
	}
	if at.size = reportSize(report); at.size > maxReport {
		at.replace(report, muster.ResultInvalid, fmt.Sprintf("its list of %d artifacts takes %s, more than the %s that a report can carry: pack them into an archive",
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

// maxReport is the most that one report may take in a frame.
const maxReport = link.MaxFrame * 3 / 4

// reportSize is how much a report takes in a frame: a quick guess that is never
// too low for small ones, and exact for big ones.
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
