package webhook

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// maxFailures is how many failed tasks a message lists.
const maxFailures = 3

// enqueueEnds converts all recorded ends of jobs to deliveries.
func (l *loop) enqueueEnds(ctx context.Context) error {
	for {
		ends, err := l.cfg.Store.JobEnds(ctx, pageSize)
		if err != nil || len(ends) == 0 {
			return err
		}
		projects := map[string][]muster.Notify{}
		var x store.EnqueueBatch
		for _, e := range ends {
			x.ProcessedEnds = append(x.ProcessedEnds, e.ID)
			if err := l.skipJobError(ctx, e.Job, "job."+string(e.State), l.enqueueEnd(ctx, &x, e, projects)); err != nil {
				return err
			}
		}
		if err := l.cfg.Store.EnqueueDeliveries(ctx, x); err != nil || len(ends) < pageSize {
			return err
		}
	}
}

// skipJobError returns an error of reading a job only if the database as a whole cannot be read. It logs any other error, such as a damaged row,
// so that one job does not block others. If the disk failed, the following write fails, too, and everything is repeated.
func (w *Sender) skipJobError(ctx context.Context, job muster.JobID, event string, err error) error {
	switch {
	case err == nil, muster.CodeOf(err) == muster.NotFound: // the job was removed
		return nil
	case ctx.Err() != nil, muster.CodeOf(err) == muster.Unavailable, muster.CodeOf(err) == muster.StorageFull:
		return err
	}
	w.log(ctx, slog.LevelError, "cannot create notifications of a job", job, slog.String("event", event), slog.Any("error", err))
	return nil
}

// notifications returns a job, and the notifications of it and its project. projects is a cache.
func (w *Sender) notifications(ctx context.Context, id muster.JobID, projects map[string][]muster.Notify) (muster.Job, []muster.Notify, error) {
	job, err := w.cfg.Store.Job(ctx, id)
	if err != nil {
		return muster.Job{}, nil, err
	}
	projectList, known := projects[job.Project]
	if !known {
		if projectList, err = w.cfg.Store.ProjectNotify(ctx, job.Project); err != nil {
			return muster.Job{}, nil, err
		}
		projects[job.Project] = projectList
	}
	if job.Spec == nil {
		return job, slices.Clone(projectList), nil
	}
	return job, slices.Concat(job.Spec.Notify, projectList), nil
}

func (w *Sender) enqueueEnd(ctx context.Context, x *store.EnqueueBatch, e store.JobEnd, projects map[string][]muster.Notify) error {
	job, list, err := w.notifications(ctx, e.Job, projects)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(n muster.Notify) bool { return !n.Matches(e.State) })
	if len(list) == 0 {
		return nil
	}
	failures, err := w.failedTasks(ctx, &job)
	if err := w.skipJobError(ctx, e.Job, "job."+string(e.State), err); err != nil {
		return err
	}
	m := endMessage(&job, e.State, e.At, failures, w.jobURL(job.ID))
	return w.addDeliveries(x, &m, list)
}

// addDeliveries adds the deliveries of a message for a list of notifications.
func (w *Sender) addDeliveries(x *store.EnqueueBatch, m *message, list []muster.Notify) error {
	now := muster.NewTime(time.Now())
	for i := range list {
		n := list[i]
		n.URL = w.keys.sealURL(n.URL)
		d, err := m.delivery(&n, now)
		if err != nil {
			return err
		}
		x.Deliveries = append(x.Deliveries, d)
	}
	return nil
}

// jobURL returns the dashboard's URL of a job, or "".
func (w *Sender) jobURL(job muster.JobID) string {
	if w.cfg.URL == "" {
		return ""
	}
	return w.cfg.URL + "/jobs/" + job.String()
}

func (w *Sender) failedTasks(ctx context.Context, job *muster.Job) ([]failedTask, error) {
	if job.Counts[muster.Failed]+job.Counts[muster.TimedOut] == 0 {
		return nil, nil
	}
	tasks, _, err := w.cfg.Store.Tasks(ctx, store.TaskQuery{Job: job.ID, States: []muster.TaskState{muster.Failed, muster.TimedOut}, Limit: maxFailures})
	if err != nil {
		return nil, err
	}
	list := make([]failedTask, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		list[i] = failedTask{Task: t.ID, Reason: t.Reason, Message: truncate(t.Message, maxText), Worker: t.Worker}
	}
	return list, nil
}

// checkWaits adds notifications of long waits of jobs.
func (l *loop) checkWaits(ctx context.Context) error {
	now := muster.NewTime(time.Now())
	projects := map[string][]muster.Notify{}
	watched := map[muster.JobID]bool{}
	if l.notifyChanged.Swap(false) {
		clear(l.nextChecks)
	}
	for after := muster.JobID(0); ; {
		jobs, err := l.cfg.Store.WatchedJobs(ctx, after, pageSize)
		if err != nil {
			return err
		}
		var x store.EnqueueBatch
		for i := range jobs {
			after = jobs[i].Job.ID
			watched[after] = true
			if err := l.checkWait(ctx, &x, &jobs[i], now, projects); err != nil {
				return err
			}
		}
		if len(x.Idle)+len(x.Deliveries) > 0 {
			if err := l.cfg.Store.EnqueueDeliveries(ctx, x); err != nil {
				return err
			}
		}
		if len(jobs) < pageSize {
			break
		}
	}
	maps.DeleteFunc(l.nextChecks, func(id muster.JobID, _ nextCheck) bool { return !watched[id] })
	return nil
}

// checkWait checks a job that has not ended. It is idle if no task runs. A job that never started is idle since its creation or
// its last retry.
func (l *loop) checkWait(ctx context.Context, x *store.EnqueueBatch, watched *store.WatchedJob, now muster.Time, projects map[string][]muster.Notify) error {
	c := watched.Job.Counts
	if c[muster.Assigned]+c[muster.Running]+c[muster.Cancelling] > 0 {
		delete(l.nextChecks, watched.Job.ID)
		if watched.Idle.Since != 0 {
			x.Idle = append(x.Idle, store.IdleJob{Job: watched.Job.ID})
		}
		return nil
	}
	idle := watched.Idle
	if since := max(watched.Job.CreatedAt, watched.Job.RetriedAt); idle.Since < since { // also if it was recorded before the job's last end
		idle = store.IdleJob{Job: watched.Job.ID, Since: since}
		if watched.Job.StartedAt != 0 {
			idle.Since = now
			x.Idle = append(x.Idle, idle)
		}
	}
	if v := l.nextChecks[watched.Job.ID]; v.since == idle.Since && now < v.at {
		return nil
	}
	next := now.Add(muster.Duration(time.Hour))
	job, list, err := l.notifications(ctx, watched.Job.ID, projects)
	if err != nil {
		if err = l.skipJobError(ctx, watched.Job.ID, typeWaiting, err); err == nil {
			l.nextChecks[watched.Job.ID] = nextCheck{at: next, since: idle.Since}
		}
		return err
	}
	var due []muster.Notify
	waited, notified := now.Sub(idle.Since), idle.NotifiedWait
	for _, n := range list {
		after, wanted := n.WaitThreshold()
		switch {
		case !wanted || after <= idle.NotifiedWait:
		case after <= waited:
			due, notified = append(due, n), max(notified, after)
		default:
			next = min(next, idle.Since.Add(after))
		}
	}
	l.nextChecks[watched.Job.ID] = nextCheck{at: next, since: idle.Since}
	if len(due) == 0 {
		return nil
	}
	idle.NotifiedWait = notified
	x.Idle = append(x.Idle, idle)
	m := waitMessage(&job, now, idle.Since, l.waitReason(ctx, job.ID), l.jobURL(job.ID))
	return l.addDeliveries(x, &m, due)
}

// nextCheck is when to check a job again that is idle since a time.
type nextCheck struct{ at, since muster.Time }

// waitReason returns why the first queued task of a job waits, or "".
func (w *Sender) waitReason(ctx context.Context, job muster.JobID) string {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	tasks, _, err := w.cfg.Store.Tasks(ctx, store.TaskQuery{Job: job, States: []muster.TaskState{muster.Queued}, Limit: 1})
	if err != nil || len(tasks) == 0 {
		return ""
	}
	why, _ := w.cfg.Explain(ctx, tasks[0].ID) // "" with an error
	return why
}
