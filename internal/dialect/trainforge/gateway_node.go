package trainforge

import (
	"math"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

// maxShows is how often worker A is offered a job: each offer that it drops leaks what it had allocated.
const maxShows = 3

// sourceLeaving constrains a worker that was stopped, until it is started again.
const sourceLeaving = "leaving"

// nodeBeat is a heartbeat of worker A.
func (g *Gateway) nodeBeat(q *request) error {
	var body beat
	if err := q.decode(&body); err != nil {
		return err
	}
	if err := checkID("worker_id", body.WorkerID); err != nil {
		return err
	}
	w, err := g.known(q, body.WorkerID)
	if err != nil {
		return err
	}
	w.Touch(body.load(w.Facts().Resources.Memory))
	return q.answer(map[string]any{"success": true, "worker_id": w.ID(), "message": "Heartbeat received", "timestamp": epoch(time.Now())})
}

// nodeJobs offers worker A the jobs that it holds and has not begun.
func (g *Gateway) nodeJobs(q *request) error {
	id := q.r.URL.Query().Get("worker_id")
	w, err := g.known(q, id)
	if err != nil {
		return err
	}
	w.Touch(nil)
	if g.idle(w) {
		w.Idle()
	}
	jobs := []job{}
	for _, t := range w.Tasks() {
		if t.Began() || len(jobs) >= maxListed {
			continue
		}
		if g.offer(t, maxShows) {
			jobs = append(jobs, g.nodeJob(t))
		}
	}
	g.nudge()
	return q.answer(map[string]any{"jobs": jobs})
}

// idle reports whether a worker runs nothing that began.
func (g *Gateway) idle(w *fleet.Worker) bool {
	for _, t := range w.Tasks() {
		if t.Began() {
			return false
		}
	}
	return true
}

// offer notes that a worker is shown a task, and reports whether it is: its files must be there, and it is not shown too often.
func (g *Gateway) offer(t *fleet.Task, most int) bool {
	at := g.track(t)
	at.mu.Lock()
	defer at.mu.Unlock()
	if !at.ready || most > 0 && at.shows >= most {
		return false
	}
	if at.shown.IsZero() {
		at.shown = time.Now()
	}
	at.shows++
	return true
}

// nodeJob is a task as worker A reads it. It asks for no GPU: worker A loses jobs with several and those for which no device has 4 GiB free.
// The runner shows the program the devices that Muster granted.
func (g *Gateway) nodeJob(t *fleet.Task) job {
	cpu := math.Max(1, math.Ceil(t.Run().Grant.CPUs))
	cpu = math.Min(cpu, math.Max(1, math.Floor(t.Worker().Facts().Resources.CPUs)))
	j := g.taskJob(t, t.ID())
	j.Resources = resources{GPU: newAmount(0), CPU: newAmount(cpu)}
	return j
}

// taskJob is a task as its worker sees it.
func (g *Gateway) taskJob(t *fleet.Task, id string) job {
	r := t.Run()
	j := job{
		ID: id, Project: cut(or(r.Group, "task"), maxID), Script: project.Runner, Status: statusPending, Training: &training{project.Runner},
		Resources: resources{GPU: newAmount(float64(len(r.Grant.GPUs))), CPU: newAmount(math.Max(1, math.Ceil(r.Grant.CPUs)))},
		CreatedAt: stamp(muster.NewTime(t.Offered())), WorkerNode: t.Worker().ID(),
	}
	if r.Grant.Memory > 0 {
		j.Resources.Memory = memorySize(itoa(int(r.Grant.Memory>>20)) + "Mi")
	}
	if t.Began() {
		j.Status = statusRunning
	}
	if r.Gang != nil {
		j.Distributed, j.NumWorkers = true, r.Gang.Size
	}
	return j
}

// nodeReport is worker A's word on a job.
func (g *Gateway) nodeReport(q *request) error {
	var body nodeStatus
	if err := q.decode(&body); err != nil {
		return err
	}
	if err := checkID("worker_id", body.WorkerID); err != nil {
		return err
	}
	if err := checkID("job_id", body.JobID); err != nil {
		return err
	}
	w, err := g.known(q, body.WorkerID)
	if err != nil {
		return err
	}
	w.Touch(nil)
	ok := map[string]any{"success": true, "job_id": body.JobID, "status": cut(body.Status, 40)}
	t := g.task(q, body.JobID)
	if t == nil || t.Worker() != w {
		if body.Status != statusRunning && t == nil && g.late(body.JobID) {
			return q.answer(ok)
		}
		return jobNotFound()
	}
	if err := g.hear(q, t, &update{Status: body.Status}, body.ExitCodes); err != nil {
		return err
	}
	return q.answer(ok)
}

// hear takes a worker's word on a task. A task that is over in the meantime is none of the worker's faults.
func (g *Gateway) hear(q *request, t *fleet.Task, u *update, codes []*int) error {
	at := g.track(t)
	var err error
	switch u.Status {
	case statusCompleted, statusFailed, statusCancelled:
		if u.Status == statusCancelled && formOf(t.Worker()) != external { // workers A and B say so when they are stopped only
			t.Worker().Constrain(sourceLeaving, "it was stopped")
		}
		err = g.finish(q.r.Context(), t, u.Status, or(u.Error, u.Message), codes)
		if muster.CodeOf(err) == muster.Conflict {
			_ = g.fleet.Late(t.ID()) // what it says of the task is known
		}
	default:
		err = g.begin(t, at)
		if err == nil && (u.Message != "" || u.Progress != nil) {
			p := muster.Progress{Progress: fraction(u.Progress)}
			if step := cut(u.Message, maxStep); step != "" {
				p.Step = &step
			}
			err = t.Progress(p)
		}
	}
	if muster.CodeOf(err) == muster.Conflict {
		return nil
	}
	return err
}

// nodeLeaves is worker A's goodbye.
func (g *Gateway) nodeLeaves(q *request) error {
	var body claim
	if err := q.decode(&body); err != nil {
		return err
	}
	if err := checkID("worker_id", body.WorkerID); err != nil {
		return err
	}
	w, err := g.known(q, body.WorkerID)
	if err != nil {
		return err
	}
	if err := g.leave(q.r.Context(), w); err != nil {
		return err
	}
	return q.answer(map[string]any{"success": true, "worker_id": w.ID(), "message": "Worker unregistered"})
}
