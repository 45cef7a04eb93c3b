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

// offers lists the jobs that an idle worker is to take, oldest first. One that began is not offered again: its worker would begin
// it once more.
func (g *Gateway) offers(ctx context.Context, worker *fleet.Worker, is flavour) []job {
	list := []job{}
	begun := false
	for _, t := range worker.Tasks() {
		if t.Began() {
			begun = true
			g.missing(t, is)
			continue
		}
		spec := t.Run().Spec
		if is == enhanced && slices.Contains(settledKinds(worker), spec.Kind) {
			if why := carries(spec); why != "" {
				g.reject(ctx, t, why)
				continue
			}
		}
		if fits(is, spec.Kind) && len(list) < maxOffers {
			g.book.give(t.ID(), worker.ID())
			list = append(list, offer(t.ID(), worker.ID(), spec, is == bridged))
		}
	}
	if !begun && is != bridged {
		worker.Idle()
	}
	return list
}

func settledKinds(w *fleet.Worker) []string { return w.Facts().Kinds }

// fits reports whether a program runs tasks of a kind: two programs may be there under one id.
func fits(is flavour, name string) bool {
	switch is {
	case simple, browser:
		return name == kind.Foreign
	case enhanced:
		return name != kind.Foreign
	case unknown, bridged:
	}
	return true
}

// missing ends a job whose worker has asked for work for long without a word of it: its last report was lost.
// A worker does not ask while it runs a job; another one on the same machine, with the same id, may.
func (g *Gateway) missing(t *fleet.Task, is flavour) {
	if is == bridged {
		return
	}
	if g.book.idling(t.ID(), time.Now()) >= g.lost {
		g.giveUp(t, "the QUBIX worker asks for work again and has not reported how the job ended")
	}
}

// giveUp hands back a task of which its worker will report nothing more.
func (g *Gateway) giveUp(t *fleet.Task, why string) {
	if err := t.Return(why); err != nil {
		return // it is over
	}
	g.book.end(t.ID(), ended{worker: t.Worker().ID(), status: failed, at: muster.NewTime(time.Now())})
}

// reject says that a worker cannot do what a task asks for. The task goes to another one.
func (g *Gateway) reject(ctx context.Context, t *fleet.Task, why string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	end := fleet.Ending{Outcome: muster.AttemptFailed, Reason: muster.Rejected, Message: "the worker refuses the task: " + why}
	if err := t.Finish(ctx, end); err != nil && muster.CodeOf(err) != muster.Unavailable { // that is sent until it is taken
		g.log(t.Worker().ID()).Warn("a task could not be rejected", slog.String("job", t.ID()), slog.Any("why", err))
	}
}

// task finds the job of a report, and checks that it is the worker's. The task is nil if it is over; then Late says why.
func (g *Gateway) task(r *http.Request, id string, named ...string) (*fleet.Task, error) {
	t := g.fleet.Task(id)
	owner := g.book.whose(id)
	if t != nil {
		owner = t.Worker().ID()
	}
	for _, name := range named {
		if name != "" && owner != "" && name != owner {
			return nil, muster.Errorf(muster.Forbidden, "Job is assigned to another provider")
		}
	}
	if owner == "" {
		return nil, nil //nolint:nilnil // it is over, or never was
	}
	if worker := g.fleet.Worker(owner); worker != nil {
		if _, err := g.speaker(r, owner); err != nil {
			return nil, err
		}
		worker.Touch(nil)
	}
	return t, nil
}

// progress serves POST /api/jobs/{job}/progress.
func (g *Gateway) progress(w http.ResponseWriter, r *http.Request) {
	var p progress
	if err := dialect.Decode(r, maxReport, &p); err != nil {
		refuse(w, err)
		return
	}
	id := r.PathValue("job")
	t, err := g.task(r, id, p.WorkerID, p.WorkerIDSnake)
	if err != nil {
		refuse(w, err)
		return
	}
	percent, err := percent(p.Progress)
	if err != nil {
		refuse(w, err)
		return
	}
	if t == nil {
		g.idle(w, id)
		return
	}
	if err := g.advance(r.Context(), t, &p, percent); err != nil {
		if muster.CodeOf(err) == muster.Conflict {
			g.idle(w, id)
			return
		}
		refuse(w, err)
		return
	}
	seconds := time.Since(g.book.heard(id)).Seconds()
	answer := map[string]any{"success": true, "costSoFar": seconds / 3600 * t.Worker().Facts().Price}
	if percent > 0 {
		answer["timeRemaining"] = int(seconds * (100 - percent) / percent)
	}
	dialect.WriteJSON(w, http.StatusOK, answer)
}

// advance passes a report of progress on.
func (g *Gateway) advance(ctx context.Context, t *fleet.Task, p *progress, percent float64) error {
	done := percent / 100
	told := muster.Progress{Progress: &done, Metrics: figures(p.Metrics)}
	if p.CurrentOperation != nil {
		step := clean(*p.CurrentOperation, maxText)
		told.Step = &step
	}
	if err := t.Begin(); err != nil {
		return err
	}
	if err := t.Progress(told); err != nil {
		return err
	}
	var gpu gpuMetrics
	if json.Unmarshal(p.Metrics, &gpu) == nil {
		if load := gpuLoad(&gpu, t.Worker().Facts().Resources); load != nil {
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
	g.book.printed(t.ID(), true)
	return t.Log(ctx, lines...)
}

// figures are the numbers of a worker's metrics. The simple worker's four are not measured: 0, 0, null and null.
func figures(raw json.RawMessage) map[string]float64 {
	found := map[string]float64{}
	for name, value := range object(raw) {
		var v float64
		if len(found) >= 50 || len(name) > 100 || clean(name, 100) != name || !present(value) || json.Unmarshal(value, &v) != nil {
			continue
		}
		if (name == "cpuPercent" || name == "ramPercent") && v == 0 {
			continue
		}
		found[name] = v
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// complete serves POST /api/jobs/{job}/complete. The first final report counts. One that comes later has no effect and is
// answered with 200, as QUBIX's backend does.
func (g *Gateway) complete(w http.ResponseWriter, r *http.Request) {
	var c completion
	if err := dialect.Decode(r, maxReport, &c); err != nil {
		refuse(w, err)
		return
	}
	if s := strings.ToLower(c.Status); s != wordCompleted && s != wordFailed {
		refuse(w, muster.Errorf(muster.Invalid, "status is %.40q: it must be completed or failed", c.Status))
		return
	}
	id := r.PathValue("job")
	t, err := g.task(r, id, c.WorkerID, c.WorkerIDSnake)
	if err != nil {
		refuse(w, err)
		return
	}
	if t == nil {
		g.tooLate(w, id)
		return
	}
	held := g.book.job(id)
	held.mu.Lock()
	defer held.mu.Unlock()
	e, err := g.end(r.Context(), t, held, &c)
	switch {
	case err == nil:
		g.book.end(id, e)
		dialect.WriteJSON(w, http.StatusOK, done(id, e))
	case muster.CodeOf(err) == muster.Conflict:
		g.tooLate(w, id)
	default:
		refuse(w, err)
	}
}

// end hands a final report to the server, and returns once that has it on disk.
func (g *Gateway) end(ctx context.Context, t *fleet.Task, held *held, c *completion) (ended, error) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	if err := t.Begin(); err != nil {
		return ended{}, err
	}
	v := judge(t.Run().Spec.Kind, c)
	lines := v.log
	if flavour(t.Worker().Facts().Labels[labelFlavour]) != bridged && !g.book.printed(t.ID(), false) { // else they came before
		lines = append(v.output, v.log...)
	}
	if len(lines) > 0 {
		if err := t.Log(ctx, lines...); err != nil {
			return ended{}, err
		}
	}
	e := ended{worker: t.Worker().ID(), status: completed, at: muster.NewTime(time.Now())}
	if v.outcome != muster.AttemptSucceeded {
		e.status = failed
	}
	e.duration = spent(c.Metrics, min(time.Since(held.began), time.Since(t.Offered())), time.Since(t.Offered()))
	e.cost = e.duration / 3600 * t.Worker().Facts().Price
	return e, t.Finish(ctx, fleet.Ending{
		Outcome: v.outcome, Reason: v.reason, Message: v.message, ExitCode: v.exitCode, Result: v.result,
		Usage: &muster.Usage{WallSeconds: e.duration, Cost: e.cost},
	})
}

// spent is for how many seconds a worker ran a job: as it says, if that can be.
func spent(metrics json.RawMessage, seen, most time.Duration) float64 {
	var m struct {
		Seconds *float64 `json:"processingTimeSeconds"`
	}
	if json.Unmarshal(metrics, &m) == nil && m.Seconds != nil && *m.Seconds > 0 && *m.Seconds <= most.Seconds()+1 {
		return *m.Seconds
	}
	return max(seen.Seconds(), 0)
}

// done is the answer to a final report. Payments are not known: null.
func done(id string, e ended) map[string]any {
	answer := map[string]any{"id": id, "status": e.status}
	if e.at != 0 {
		answer["completedAt"], answer["actualCost"], answer["actualDuration"] = e.at.String(), e.cost, e.duration
	}
	return map[string]any{"success": true, "job": answer, "payment": nil}
}

// idle answers a report of progress of a job that is over. It has no effect. A bridge of Muster reads the status, and stops the job.
func (g *Gateway) idle(w http.ResponseWriter, id string) {
	if g.book.whose(id) == "" {
		refuse(w, muster.Errorf(muster.NotFound, "Job not found"))
		return
	}
	e, known := g.book.how(id)
	if !known {
		e.status = cancelled // or timed out, or given to another: the worker's work on it is of no use
	}
	dialect.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "status": e.status})
}

// tooLate answers a final report of a job that is over, which has no effect, and of one that never was.
func (g *Gateway) tooLate(w http.ResponseWriter, id string) {
	why := g.fleet.Late(id)
	if muster.CodeOf(why) == muster.NotFound {
		refuse(w, muster.Errorf(muster.NotFound, "Job not found"))
		return
	}
	e, known := g.book.how(id)
	if !known { // it was reported before this server started, or not at all
		switch {
		case errors.Is(why, fleet.ErrReported):
			e.status = completed
		case errors.Is(why, fleet.ErrTimedOut):
			e.status = failed
		case errors.Is(why, fleet.ErrCancelled):
			e.status = cancelled
		default:
			e.status = pending // another worker may have it
		}
	}
	dialect.WriteJSON(w, http.StatusOK, done(id, e))
}
