package qubix

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/kind"
)

// offeredJobs lists the jobs that an idle worker is to take, oldest first. One that began is not offered again: its worker would begin
// it once more.
func (g *Gateway) offeredJobs(ctx context.Context, worker *fleet.Worker, fl flavour) []job {
	list := []job{}
	busy := false
	for _, t := range worker.Tasks() {
		if t.Started() {
			busy = true
			g.checkLostReport(t, fl)
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
			g.tracker.recordOffer(t.ID(), worker.ID())
			list = append(list, toWorkerJob(t.ID(), worker.ID(), spec, fl == flavourBridge))
		}
	}
	if !busy && fl != flavourBridge {
		worker.MarkIdle()
	}
	return list
}

// runsKind reports whether a program runs tasks of a kind: two programs may be there under one id.
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

// checkLostReport ends a job whose worker has asked for work for long without a word of it: its last report was lost.
// A worker does not ask while it runs a job; another one on the same machine, with the same id, may.
func (g *Gateway) checkLostReport(t *fleet.Task, fl flavour) {
	if fl == flavourBridge {
		return
	}
	if g.tracker.recordIdle(t.ID(), time.Now()) >= g.lostTimeout {
		g.requeue(t, "the QUBIX worker asks for work again and has not reported how the job ended")
	}
}

// requeue hands back a task of which its worker will report nothing more.
func (g *Gateway) requeue(t *fleet.Task, reason string) {
	if err := t.Requeue(reason); err != nil {
		return // it is over
	}
	g.tracker.recordEnd(t.ID(), endedJob{worker: t.Worker().ID(), status: statusFailed, at: muster.NewTime(time.Now())})
}

// reject says that a worker cannot do what a task asks for. The task goes to another one.
func (g *Gateway) reject(ctx context.Context, t *fleet.Task, reason string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	end := fleet.FinalReport{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "the worker refuses the task: " + reason}
	if err := t.Finish(ctx, end); err != nil && muster.CodeOf(err) != muster.Unavailable { // that is sent until it is taken
		g.workerLog(t.Worker().ID()).Warn("a task could not be rejected", slog.String("job", t.ID()), slog.Any("why", err))
	}
}

// reportedTask finds the job of a report, and checks that it is the worker's. The task is nil if it is over; then Late says why.
func (g *Gateway) reportedTask(r *http.Request, id string, ids ...string) (*fleet.Task, error) {
	t := g.fleet.Task(id)
	owner := g.tracker.offeredWorker(id)
	if t != nil {
		owner = t.Worker().ID()
	}
	for _, name := range ids {
		if name != "" && owner != "" && name != owner {
			return nil, muster.Errorf(muster.Forbidden, "Job is assigned to another provider")
		}
	}
	if owner == "" {
		return nil, nil //nolint:nilnil // it is over, or never was
	}
	if worker := g.fleet.Worker(owner); worker != nil {
		if _, err := g.authorizeWorker(r, owner); err != nil {
			return nil, err
		}
		worker.Touch(nil)
	}
	return t, nil
}

// progress serves POST /api/jobs/{job}/progress.
func (g *Gateway) progress(w http.ResponseWriter, r *http.Request) error {
	var p progress
	if err := dialect.Decode(r, maxReportBody, &p); err != nil {
		return err
	}
	id := r.PathValue("job")
	t, err := g.reportedTask(r, id, p.WorkerID, p.WorkerIDSnake)
	if err != nil {
		return err
	}
	percent, err := checkPercent(p.Progress)
	if err != nil {
		return err
	}
	if t == nil {
		return g.answerLateProgress(w, id)
	}
	if err := g.applyProgress(r.Context(), t, &p, percent); err != nil {
		if muster.CodeOf(err) == muster.Conflict {
			return g.answerLateProgress(w, id)
		}
		return err
	}
	seconds := time.Since(g.tracker.recordProgress(id)).Seconds()
	answer := map[string]any{"success": true, "costSoFar": seconds / 3600 * t.Worker().Facts().Price}
	if percent > 0 {
		answer["timeRemaining"] = int(seconds * (100 - percent) / percent)
	}
	return reply(w, answer)
}

// applyProgress passes a report of progress on.
func (g *Gateway) applyProgress(ctx context.Context, t *fleet.Task, p *progress, percent float64) error {
	done := percent / 100
	update := muster.Progress{Progress: &done, Metrics: numericMetrics(p.Metrics)}
	if p.CurrentOperation != nil {
		step := sanitize(*p.CurrentOperation, maxText)
		update.Step = &step
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
	g.tracker.recordOutput(t.ID(), true)
	return t.Log(ctx, lines...)
}

// numericMetrics are the numbers of a worker's metrics. The simple worker's four are not measured: 0, 0, null and null.
func numericMetrics(raw json.RawMessage) map[string]float64 {
	out := map[string]float64{}
	for name, value := range jsonObject(raw) {
		var v float64
		if len(out) >= 50 || len(name) > 100 || sanitize(name, 100) != name || !hasValue(value) || json.Unmarshal(value, &v) != nil {
			continue
		}
		if (name == "cpuPercent" || name == "ramPercent") && v == 0 {
			continue
		}
		out[name] = v
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// complete serves POST /api/jobs/{job}/complete. The first final report counts. One that comes later has no effect and is
// answered with 200, as QUBIX's backend does.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request) error {
	var c completion
	if err := dialect.Decode(r, maxReportBody, &c); err != nil {
		return err
	}
	if s := strings.ToLower(c.Status); s != reportCompleted && s != reportFailed {
		return muster.Errorf(muster.Invalid, "status is %.40q: it must be completed or failed", c.Status)
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
	e, err := g.finish(r.Context(), t, tracked, &c)
	switch {
	case err == nil:
		g.tracker.recordEnd(id, e)
		return reply(w, completionAnswer(id, e))
	case muster.CodeOf(err) == muster.Conflict:
		return g.answerLateReport(w, id)
	default:
		return err
	}
}

// finish hands a final report to the server, and returns once that has it on disk.
func (g *Gateway) finish(ctx context.Context, t *fleet.Task, tracked *runningJob, c *completion) (endedJob, error) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	if err := t.MarkStarted(); err != nil {
		return endedJob{}, err
	}
	v := evaluate(t.Run().Spec.Kind, c)
	lines := v.log
	if flavour(t.Worker().Facts().Labels[labelFlavour]) != flavourBridge && !g.tracker.recordOutput(t.ID(), false) { // else they came before
		lines = append(v.output, v.log...)
	}
	if len(lines) > 0 {
		if err := t.Log(ctx, lines...); err != nil {
			return endedJob{}, err
		}
	}
	e := endedJob{worker: t.Worker().ID(), status: statusCompleted, at: muster.NewTime(time.Now())}
	if v.outcome != muster.AttemptSucceeded {
		e.status = statusFailed
	}
	e.duration = runtimeSeconds(c.Metrics, min(time.Since(tracked.startedAt), time.Since(t.OfferedAt())), time.Since(t.OfferedAt()))
	e.cost = e.duration / 3600 * t.Worker().Facts().Price
	return e, t.Finish(ctx, fleet.FinalReport{
		Outcome: v.outcome, Reason: v.reason, Message: v.message, ExitCode: v.exitCode, Result: v.result,
		Usage: &muster.Usage{WallSeconds: e.duration, Cost: e.cost},
	})
}

// runtimeSeconds is for how many seconds a worker ran a job: as it says, if that can be.
func runtimeSeconds(metrics json.RawMessage, measured, limit time.Duration) float64 {
	var m struct {
		Seconds *float64 `json:"processingTimeSeconds"`
	}
	if json.Unmarshal(metrics, &m) == nil && m.Seconds != nil && *m.Seconds > 0 && *m.Seconds <= limit.Seconds()+1 {
		return *m.Seconds
	}
	return max(measured.Seconds(), 0)
}

// completionAnswer is the answer to a final report. Payments are not known: null.
func completionAnswer(id string, e endedJob) map[string]any {
	answer := map[string]any{"id": id, "status": e.status}
	if e.at != 0 {
		answer["completedAt"], answer["actualCost"], answer["actualDuration"] = e.at.String(), e.cost, e.duration
	}
	return map[string]any{"success": true, "job": answer, "payment": nil}
}

// answerLateProgress answers a report of progress of a job that is over. It has no effect. A bridge of Muster reads the status, and stops the job.
func (g *Gateway) answerLateProgress(w http.ResponseWriter, id string) error {
	if g.tracker.offeredWorker(id) == "" {
		return muster.Errorf(muster.NotFound, "Job not found")
	}
	e, known := g.tracker.findEnded(id)
	if !known {
		e.status = statusCancelled // or timed out, or given to another: the worker's work on it is of no use
	}
	return reply(w, map[string]any{"success": true, "status": e.status})
}

// answerLateReport answers a final report of a job that is over, which has no effect, and of one that never was.
func (g *Gateway) answerLateReport(w http.ResponseWriter, id string) error {
	reason := g.fleet.ReportLate(id)
	if muster.CodeOf(reason) == muster.NotFound {
		return muster.Errorf(muster.NotFound, "Job not found")
	}
	e, known := g.tracker.findEnded(id)
	if !known { // it was reported before this server started, or not at all
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
	return reply(w, completionAnswer(id, e))
}
