package trainforge

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
	"github.com/muster-dev/muster/internal/wake"
)

// maxOffers is how often worker A is offered a job: each offer that it drops leaks what it had allocated.
const maxOffers = 3

// sourceStopped constrains a worker that was stopped, until it is started again.
const sourceStopped = "leaving"

func (g *Gateway) nodeHeartbeat(req *request, w *fleet.Worker, body *heartbeat) error {
	w.Touch(body.load(w.Facts().Resources.Memory))
	return req.reply(map[string]any{"success": true, "worker_id": w.ID(), "message": "Heartbeat received", "timestamp": lenient.UnixSeconds(time.Now())})
}

// nodeJobs offers worker A the jobs that it holds and has not begun.
func (g *Gateway) nodeJobs(req *request) error {
	w, err := g.authorizedWorker(req, req.r.URL.Query().Get("worker_id"))
	if err != nil {
		return err
	}
	w.Touch(nil)
	if isIdle(w) {
		w.MarkIdle()
	}
	jobs := []job{}
	for _, t := range w.Tasks() {
		if !t.Started() && len(jobs) < maxListed && g.recordOffer(t, maxOffers) {
			jobs = append(jobs, g.nodeJob(t))
		}
	}
	wake.Set(g.wake)
	return req.reply(map[string]any{"jobs": jobs})
}

func startedTasks(w *fleet.Worker) []*fleet.Task {
	return slices.DeleteFunc(w.Tasks(), func(t *fleet.Task) bool { return !t.Started() })
}

func isIdle(w *fleet.Worker) bool { return len(startedTasks(w)) == 0 }

// recordOffer notes that a worker is shown a task, and reports whether it is: its files must be there, and it is not shown too often.
func (g *Gateway) recordOffer(t *fleet.Task, limit int) bool {
	ts := g.state(t)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.ready.Load() || limit > 0 && ts.offers >= limit {
		return false
	}
	if ts.offeredAt.IsZero() {
		ts.offeredAt = time.Now()
	}
	ts.offers++
	return true
}

// nodeJob is a task as worker A reads it. It asks for no GPU: worker A loses jobs with several and those for which no device has 4 GiB free.
// The runner shows the program the devices that Muster granted.
func (g *Gateway) nodeJob(t *fleet.Task) job {
	j := g.taskJob(t, t.ID())
	cores := max(1, math.Floor(t.Worker().Facts().Resources.CPUs))
	j.Resources = resources{GPU: newAmount(0), CPU: newAmount(min(j.Resources.CPU.number, cores))}
	return j
}

func (g *Gateway) taskJob(t *fleet.Task, id string) job {
	r := t.Run()
	j := job{
		ID: id, Project: lenient.Text(cmp.Or(r.Group, "task"), maxID), Script: project.Runner, Status: statusPending, Training: &training{project.Runner},
		Resources: resources{GPU: newAmount(float64(len(r.Grant.GPUs))), CPU: newAmount(math.Max(1, math.Ceil(r.Grant.CPUs)))},
		CreatedAt: formatTime(muster.NewTime(t.OfferedAt())), WorkerNode: t.Worker().ID(),
	}
	if r.Grant.Memory > 0 {
		j.Resources.Memory = memorySize(itoa(int(r.Grant.Memory>>20)) + "Mi")
	}
	if t.Started() {
		j.Status = statusRunning
	}
	if r.Gang != nil {
		j.Distributed, j.NumWorkers = true, r.Gang.Size
	}
	return j
}

func (g *Gateway) nodeJobStatus(req *request, w *fleet.Worker, body *nodeStatus) error {
	if err := checkID("job_id", body.JobID); err != nil {
		return err
	}
	ok := map[string]any{"success": true, "job_id": body.JobID, "status": lenient.Text(body.Status, 40)}
	t := g.task(req, body.JobID)
	if t == nil || t.Worker() != w {
		if body.Status != statusRunning && t == nil && g.isLate(body.JobID) {
			return req.reply(ok)
		}
		return jobNotFound()
	}
	if err := g.applyStatus(req, t, &update{Status: body.Status}, body.ExitCodes); err != nil {
		return err
	}
	return req.reply(ok)
}

// applyStatus applies a worker's status of a task. It is not an error if the task has ended meanwhile.
func (g *Gateway) applyStatus(req *request, t *fleet.Task, u *update, codes []*int) error {
	ts := g.state(t)
	var err error
	switch u.Status {
	case statusCompleted, statusFailed, statusCancelled:
		if u.Status == statusCancelled && workerForm(t.Worker()) != formExternal { // workers A and B say so when they are stopped only
			t.Worker().Constrain(sourceStopped, "it was stopped")
		}
		err = g.finish(req.r.Context(), t, u.Status, cmp.Or(u.Error, u.Message), codes)
		if muster.CodeOf(err) == muster.Conflict {
			_ = g.Fleet.ReportLate(t.ID()) // what it says of the task is known
		}
	default:
		err = g.markStarted(t, ts)
		if err == nil && (u.Message != "" || u.Progress != nil) {
			err = t.Progress(muster.Progress{Progress: fraction(u.Progress), Step: lenient.NonZero(lenient.Text(u.Message, maxStep))})
		}
	}
	if muster.CodeOf(err) == muster.Conflict {
		return nil
	}
	return err
}

func (g *Gateway) nodeUnregister(req *request, w *fleet.Worker, _ *claimRequest) error {
	if err := g.leave(req.r.Context(), w); err != nil {
		return err
	}
	return req.reply(map[string]any{"success": true, "worker_id": w.ID(), "message": "Worker unregistered"})
}
