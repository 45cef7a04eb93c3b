package trainforge

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/wake"
)

// isPoll reports whether GET /api/jobs comes from worker B or from gpu_worker.py, which is the same with another limit. They
// send no key and nothing else by which they differ from clients.
func isPoll(req *request) bool {
	query := req.r.URL.Query()
	if req.r.Header.Get("Authorization") != "" || len(query) != 1 {
		return false
	}
	limit := query.Get("limit")
	return limit == "1" || limit == "10" && strings.HasPrefix(req.r.UserAgent(), "python-requests/")
}

// poll answers worker B: with the job that it is to run, if there is one. It never sees another one as pending, since it would run it.
func (g *Gateway) poll(req *request) error {
	if err := req.caller.CanJoinWorkers(); err != nil {
		return err
	}
	w, err := g.pollerWorker(req)
	if err != nil {
		return err
	}
	answer := jobList{Success: true, Jobs: []job{}}
	if w == nil {
		return req.reply(answer)
	}
	w.Touch(nil)
	if !isIdle(w) { // another program at this address asks, or this one was started again
		return req.reply(answer)
	}
	w.MarkIdle()
	for _, t := range w.Tasks() {
		if g.recordOffer(t, 0) {
			answer.Jobs, answer.Count = append(answer.Jobs, g.taskJob(t, t.ID())), 1
			break
		}
	}
	wake.Set(g.wake)
	return req.reply(answer)
}

// pollerWorker returns the worker at the address of a request, nil if it was drained and not started again. All that poll from one
// address are one worker, for they say no id.
func (g *Gateway) pollerWorker(req *request) (*fleet.Worker, error) {
	remote, key := dialect.RemoteAddr(req.r), req.caller.Key
	id := "poller-" + strings.NewReplacer(":", "-", "%", "-").Replace(remote.String())
	if key != "" {
		id += "-" + key
	}
	if w := g.Fleet.Worker(id); w != nil {
		last, _ := g.lastPoll.Get(id)
		g.lastPoll.Put(id, time.Now())
		switch {
		case !isInactive(w):
			w.Constrain(sourceStopped, "")
			return w, nil
		case time.Since(last) < g.timeouts.silence:
			return nil, nil //nolint:nilnil // it was drained, and asks on
		}
	}
	w, err := g.Fleet.Register(req.r.Context(), fleet.Facts{
		ID: id, Name: lenient.Name(id), Labels: formLabels(formPoller, map[string]string{"address": remote.String()}), Kinds: supportedKinds(),
		Lacks:     []string{muster.FeaturePython, muster.FeatureRequirements, muster.FeatureProject, muster.FeatureGang},
		Resources: muster.Resources{CPUs: g.cpus, Memory: g.memory, Slots: 1, MaxTasks: 1},
		Remote:    remote, Key: key,
	})
	if err != nil {
		return nil, err
	}
	if !g.sharedConfigured {
		w.Constrain("projects", "it reads projects from a shared folder only: start the server with --dialect trainforge=…,projects=DIR, with its folder api/storage/projects/projects")
	}
	return w, nil
}

// updateJob handles PUT /api/jobs/{id}: worker B reports on the job that it runs, or a client cancels one.
func (g *Gateway) updateJob(req *request, body *update) error {
	switch body.Status {
	case "", statusPending, statusRunning, statusCompleted, statusFailed, statusCancelled:
	default:
		return muster.Errorf(muster.Invalid, "Invalid status. Must be one of: pending, running, completed, failed, cancelled")
	}
	id := req.r.PathValue("id")
	t := g.task(req, id)
	if t == nil {
		if g.isLate(id) {
			return req.reply(map[string]any{"success": true, "message": "Job updated successfully", "job_id": id, "status": body.Status})
		}
		return g.updateClientJob(req, id, body)
	}
	t.Worker().Touch(nil)
	if err := g.applyStatus(req, t, body, nil); err != nil {
		return err
	}
	j := g.taskJob(t, id)
	j.Status = cmp.Or(body.Status, j.Status)
	return req.reply(jobAnswer{true, "Job updated successfully", j})
}

func (g *Gateway) addLogEntry(req *request, body *logEntry) error {
	if strings.TrimSpace(body.Message) == "" {
		return &statusError{http.StatusBadRequest, "Message is required"}
	}
	return g.appendLines(req, splitLines(body.Message))
}

// appendLines appends lines to a task's log. Those of a task that is over are dropped.
func (g *Gateway) appendLines(req *request, lines []string) error {
	id := req.r.PathValue("id")
	t := g.task(req, id)
	if t == nil {
		// NotFound is for what never was one.
		if !g.wasTask(id) {
			return jobNotFound()
		}
	} else if err := g.handleLines(req.r.Context(), t, g.state(t), lines); err != nil && muster.CodeOf(err) != muster.Conflict {
		return err
	}
	return req.reply(map[string]any{"success": true, "message": "Added " + strconv.Itoa(len(lines)) + " log entries"})
}
