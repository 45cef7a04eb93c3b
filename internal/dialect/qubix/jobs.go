package qubix

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/lru"
)

// offeredJobs lists the jobs that an idle worker gets, oldest first. It does not offer a started job again, because its worker would
// start it twice.
func (g *Gateway) offeredJobs(ctx context.Context, worker *fleet.Worker, fl flavour) []job {
	list := []job{}
	busy := false
	for _, t := range worker.Tasks() {
		if t.Started() {
			busy = true
			if fl != flavourBridge {
				g.checkLostReport(t)
			}
			continue
		}
		spec := t.Run().Spec
		if fl == flavourEnhanced && slices.Contains(worker.Facts().Kinds, spec.Kind) {
			if reason := unsupportedReason(spec); reason != "" {
				g.reject(ctx, t, reason)
				continue
			}
		}
		if runsKind(fl, spec.Kind) && len(list) < maxOffers {
			g.tracker.offered.Add(t.ID(), worker.ID())
			list = append(list, toWorkerJob(t.ID(), worker.ID(), spec, fl == flavourBridge))
		}
	}
	if !busy && fl != flavourBridge {
		worker.MarkIdle()
	}
	return list
}

// runsKind reports whether a program runs tasks of a kind: two programs may have one id.
func runsKind(fl flavour, name string) bool {
	switch fl {
	case flavourSimple, flavourBrowser:
		return name == kind.Foreign
	case flavourEnhanced:
		return name != kind.Foreign
	case flavourUnknown, flavourBridge:
	}
	return true
}

// checkLostReport requeues a job whose worker asks for work for lostTimeout without reporting it: its final report was lost.
// A worker does not ask while it runs a job; another one on the same machine, with the same id, may.
func (g *Gateway) checkLostReport(t *fleet.Task) {
	tracked, now := g.tracker.job(t.ID()), time.Now()
	tracked.idleSince.CompareAndSwap(nil, &now)
	if since := tracked.idleSince.Load(); since != nil && now.Sub(*since) >= g.lostTimeout {
		g.requeue(t, "the QUBIX worker asks for work and has not reported the job")
	}
}

// requeue returns a task to the server that its worker will not report.
func (g *Gateway) requeue(t *fleet.Task, reason string) {
	if err := t.Requeue(reason); err != nil {
		return // the task is done
	}
	g.tracker.recordEnd(t.ID(), endedJob{status: statusFailed, at: muster.NewTime(time.Now())})
}

// reject reports that a worker cannot run a task. The server assigns the task to another one.
func (g *Gateway) reject(ctx context.Context, t *fleet.Task, reason string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	end := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "rejected by the worker: " + reason}
	if err := t.Finish(ctx, end); err != nil && muster.CodeOf(err) != muster.Unavailable { // then it is stored and sent later
		g.Deps.Log.Warn("cannot reject a task", slog.String("worker", t.Worker().ID()), slog.String("job", t.ID()), slog.Any("why", err))
	}
}

// reportedTask returns the task of a report, after checking that it is the worker's. It is nil if the task is done or unknown.
func (g *Gateway) reportedTask(r *http.Request, id string, ids ...string) (*fleet.Task, error) {
	t := g.Fleet.Task(id)
	owner, _ := g.tracker.offered.Get(id)
	if t != nil {
		owner = t.Worker().ID()
	}
	for _, name := range ids {
		if name != "" && owner != "" && name != owner {
			return nil, muster.Errorf(muster.Forbidden, "Job is assigned to another provider")
		}
	}
	if owner == "" {
		return nil, nil //nolint:nilnil // done or unknown
	}
	if worker := g.Fleet.Worker(owner); worker != nil {
		if _, err := g.authorizeWorker(r, owner); err != nil {
			return nil, err
		}
		worker.Touch(nil)
	}
	return t, nil
}

func (g *Gateway) progress(w http.ResponseWriter, r *http.Request, p *progress) error {
	id := r.PathValue("job")
	t, err := g.reportedTask(r, id, p.WorkerID, p.WorkerIDSnake)
	switch {
	case err != nil:
		return err
	case p.Progress == nil:
		return muster.Errorf(muster.Invalid, "progress is missing: send a number from 0 to 100")
	case *p.Progress < 0 || *p.Progress > 100:
		return muster.Errorf(muster.Invalid, "progress is %v: it must be from 0 to 100", *p.Progress)
	case t == nil:
		return g.answerLateProgress(w, id)
	}
	if err := g.applyProgress(r.Context(), t, p); err != nil {
		if muster.CodeOf(err) == muster.Conflict {
			return g.answerLateProgress(w, id)
		}
		return err
	}
	tracked := g.tracker.job(id)
	tracked.idleSince.Store(nil)
	seconds, percent := time.Since(tracked.startedAt).Seconds(), *p.Progress
	answer := map[string]any{"success": true, "costSoFar": seconds / 3600 * t.Worker().Facts().Price}
	if percent > 0 {
		answer["timeRemaining"] = int(seconds * (100 - percent) / percent)
	}
	return dialect.Reply(w, answer)
}

// applyProgress forwards a report of progress.
func (g *Gateway) applyProgress(ctx context.Context, t *fleet.Task, p *progress) error {
	update := muster.Progress{Progress: new(*p.Progress / 100), Metrics: numericMetrics(p.Metrics)}
	if p.CurrentOperation != nil {
		update.Step = new(lenient.Text(*p.CurrentOperation, maxText))
	}
	if err := t.MarkStarted(); err != nil {
		return err
	}
	if err := t.Progress(update); err != nil {
		return err
	}
	var gpu gpuMetrics
	if json.Unmarshal(p.Metrics, &gpu) == nil {
		if load := parseGPULoad(&gpu, t.Worker().Facts().Resources); load != nil {
			t.Worker().Touch(load)
		}
	}
	if len(p.LogLines) == 0 {
		return nil
	}
	lines := make([]string, 0, len(p.LogLines))
	for _, l := range p.LogLines {
		lines = append(lines, strings.Split(l.Message, "\n")...)
	}
	g.tracker.job(t.ID()).hasOutput.Store(true)
	return t.Log(ctx, lines...)
}

// numericMetrics returns the numbers of a worker's metrics, without cpuPercent and ramPercent of 0, which the simple worker does not measure.
func numericMetrics(raw json.RawMessage) map[string]float64 {
	out := map[string]float64{}
	for name, value := range lenient.Object(raw) {
		var v float64
		if len(out) >= 50 || len(name) > 100 || lenient.Text(name, 100) != name || !lenient.HasValue(value) || json.Unmarshal(value, &v) != nil {
			continue
		}
		if (name == "cpuPercent" || name == "ramPercent") && v == 0 {
			continue
		}
		out[name] = v
	}
	return out
}

// complete serves POST /api/jobs/{job}/complete. The first final report counts. Later ones have no effect and get the status 200, as from
// QUBIX's backend.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request, c *completion) error {
	if s := strings.ToLower(c.Status); s != reportCompleted && s != reportFailed {
		return muster.Errorf(muster.Invalid, "invalid status %.40q: use completed or failed", c.Status)
	}
	id := r.PathValue("job")
	t, err := g.reportedTask(r, id, c.WorkerID, c.WorkerIDSnake)
	if err != nil {
		return err
	}
	if t == nil {
		return g.answerLateReport(w, id)
	}
	tracked := g.tracker.job(id)
	tracked.mu.Lock()
	defer tracked.mu.Unlock()
	e, err := g.finish(r.Context(), t, tracked, c)
	switch {
	case err == nil:
		g.tracker.recordEnd(id, e)
		return dialect.Reply(w, completionAnswer(id, e))
	case muster.CodeOf(err) == muster.Conflict:
		return g.answerLateReport(w, id)
	default:
		return err
	}
}

// finish reports the end of a job. It returns nil once the server has the report on disk.
func (g *Gateway) finish(ctx context.Context, t *fleet.Task, tracked *runningJob, c *completion) (endedJob, error) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if err := t.MarkStarted(); err != nil {
		return endedJob{}, err
	}
	v := evaluate(t.Run().Spec.Kind, c)
	lines := v.log
	if flavour(t.Worker().Facts().Labels[labelFlavour]) != flavourBridge && !tracked.hasOutput.Load() { // otherwise progress reports had it
		lines = append(v.output, v.log...)
	}
	if len(lines) > 0 {
		if err := t.Log(ctx, lines...); err != nil {
			return endedJob{}, err
		}
	}
	e := endedJob{status: statusCompleted, at: muster.NewTime(time.Now())}
	if v.Outcome != muster.AttemptSucceeded {
		e.status = statusFailed
	}
	e.duration = runtimeSeconds(c.Metrics, min(time.Since(tracked.startedAt), time.Since(t.OfferedAt())), time.Since(t.OfferedAt()))
	e.cost = e.duration / 3600 * t.Worker().Facts().Price
	v.Usage = &muster.Usage{WallSeconds: e.duration, Cost: e.cost}
	return e, t.Finish(ctx, v.FinalReport)
}

// runtimeSeconds returns how long a worker ran a job: as reported, if that is plausible.
func runtimeSeconds(metrics json.RawMessage, measured, limit time.Duration) float64 {
	var m struct {
		Seconds *float64 `json:"processingTimeSeconds"`
	}
	if json.Unmarshal(metrics, &m) == nil && m.Seconds != nil && *m.Seconds > 0 && *m.Seconds <= limit.Seconds()+1 {
		return *m.Seconds
	}
	return max(measured.Seconds(), 0)
}

// completionAnswer returns the answer to a final report. There are no payments: null.
func completionAnswer(id string, e endedJob) map[string]any {
	answer := map[string]any{"id": id, "status": e.status}
	if e.at != 0 {
		answer["completedAt"], answer["actualCost"], answer["actualDuration"] = e.at.String(), e.cost, e.duration
	}
	return map[string]any{"success": true, "job": answer, "payment": nil}
}

// answerLateProgress answers a report of progress of a job that is done. A bridge of Muster reads the status and cancels the job.
func (g *Gateway) answerLateProgress(w http.ResponseWriter, id string) error {
	if _, offered := g.tracker.offered.Get(id); !offered {
		return muster.Errorf(muster.NotFound, "Job not found")
	}
	e, known := g.tracker.ended.Get(id)
	if !known {
		e.status = statusCancelled // or timed out, or assigned to another worker
	}
	return dialect.Reply(w, map[string]any{"success": true, "status": e.status})
}

// answerLateReport answers a final report of a job that is done or unknown.
func (g *Gateway) answerLateReport(w http.ResponseWriter, id string) error {
	reason := g.Fleet.ReportLate(id)
	if muster.CodeOf(reason) == muster.NotFound {
		return muster.Errorf(muster.NotFound, "Job not found")
	}
	e, known := g.tracker.ended.Get(id)
	if !known { // reported before a restart, or not at all
		switch {
		case errors.Is(reason, fleet.ErrReported):
			e.status = statusCompleted
		case errors.Is(reason, fleet.ErrTimedOut):
			e.status = statusFailed
		case errors.Is(reason, fleet.ErrCancelled):
			e.status = statusCancelled
		default:
			e.status = statusPending // another worker may have it
		}
	}
	return dialect.Reply(w, completionAnswer(id, e))
}

const (
	maxEnded       = 1000
	maxOfferedJobs = 5000
	maxSeenWorkers = 2000
	flavourTTL     = 5 * time.Minute // of a program without requests
)

// jobTracker holds the state of workers and jobs that the fleet does not have. It is not needed after a restart. Its methods may be called
// concurrently.
type jobTracker struct {
	jobs    *lru.Cache[string, *runningJob]
	ended   *lru.Cache[string, endedJob]
	offered *lru.Cache[string, string]                // job → worker
	workers *lru.Cache[string, map[flavour]time.Time] // when the programs of a worker were seen
}

type runningJob struct {
	mu        sync.Mutex // serializes final reports
	startedAt time.Time
	idleSince atomic.Pointer[time.Time] // since when its worker asks for work without reporting it; nil if it does not
	hasOutput atomic.Bool               // progress reports had output
}

// endedJob is the end of a job, for later reports.
type endedJob struct {
	status   string
	at       muster.Time
	cost     float64
	duration float64 // seconds
}

func newJobTracker() *jobTracker {
	return &jobTracker{
		jobs: lru.NewCounted[string, *runningJob](maxOfferedJobs), ended: lru.NewCounted[string, endedJob](maxEnded),
		offered: lru.NewCounted[string, string](maxOfferedJobs), workers: lru.NewCounted[string, map[flavour]time.Time](maxSeenWorkers),
	}
}

// recordFlavour records a request of a program, and returns the flavours without requests for flavourTTL.
func (b *jobTracker) recordFlavour(worker string, seen flavour, now time.Time) (stale []flavour) {
	b.workers.Update(worker, func(n map[flavour]time.Time, exists bool) map[flavour]time.Time {
		if !exists {
			n = map[flavour]time.Time{}
		}
		n[seen] = now
		for other, at := range n {
			if now.Sub(at) > flavourTTL {
				stale = append(stale, other)
				delete(n, other)
			}
		}
		return n
	})
	return stale
}

func (b *jobTracker) job(id string) *runningJob {
	return b.jobs.Add(id, &runningJob{startedAt: time.Now()})
}

func (b *jobTracker) recordEnd(id string, e endedJob) {
	b.jobs.Remove(id)
	b.ended.Put(id, e)
}

// Claims prevents that two bridges of one process accept a job that a backend offers to all providers. A nil *Claims allows every job. Its
// methods may be called concurrently.
type Claims struct{ owners *lru.Cache[string, string] } // of jobs

const maxClaims = 50_000 // jobs

// NewClaims returns empty Claims.
func NewClaims() *Claims { return &Claims{lru.NewCounted[string, string](maxClaims)} }

// claim claims a job for a provider. It reports false if the job is another provider's.
func (c *Claims) claim(job, provider string) bool {
	return c == nil || c.owners.Add(job, provider) == provider
}
