package webhook

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// maxFailures is how many failed tasks a message names.
const maxFailures = 3

// expand turns ends of jobs into deliveries, until there are none left.
func (l *loop) expand(ctx context.Context) error {
	for {
		ends, err := l.cfg.Store.Ends(ctx, page)
		if err != nil || len(ends) == 0 {
			return err
		}
		projects := map[string][]muster.Notify{}
		var x store.Expansion
		for _, e := range ends {
			x.Taken = append(x.Taken, e.ID)
			if err := l.ofJob(ctx, e.Job, "job."+string(e.State), l.expandEnd(ctx, &x, e, projects)); err != nil {
				return err
			}
		}
		if err := l.cfg.Store.Expand(ctx, x); err != nil || len(ends) < page {
			return err
		}
	}
}

// ofJob returns an error of reading a job only if the database as a whole cannot be read. Another one, such as of a damaged row, concerns
// that job alone: it is logged and does not block other jobs. If it was the disk after all, the write that follows fails, and all is repeated.
func (w *Webhooks) ofJob(ctx context.Context, job muster.JobID, event string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, muster.CodeOf(err) == muster.Unavailable, muster.CodeOf(err) == muster.StorageFull:
		return err
	}
	w.log(ctx, slog.LevelError, "a job cannot be notified", job, slog.String("event", event), slog.Any("error", err))
	return nil
}

// asked returns a job, and the notifications of it and its project. What is read of projects is kept in the map.
func (w *Webhooks) asked(ctx context.Context, id muster.JobID, projects map[string][]muster.Notify) (muster.Job, []muster.Notify, error) {
	job, err := w.cfg.Store.Job(ctx, id)
	if err != nil {
		return muster.Job{}, nil, err
	}
	ofProject, known := projects[job.Project]
	if !known {
		if ofProject, err = w.cfg.Store.ProjectNotify(ctx, job.Project); err != nil {
			return muster.Job{}, nil, err
		}
		projects[job.Project] = ofProject
	}
	if job.Spec == nil {
		return job, slices.Clone(ofProject), nil
	}
	return job, slices.Concat(job.Spec.Notify, ofProject), nil
}

func (w *Webhooks) expandEnd(ctx context.Context, x *store.Expansion, e store.JobEnd, projects map[string][]muster.Notify) error {
	job, list, err := w.asked(ctx, e.Job, projects)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(n muster.Notify) bool { return !n.Wants(e.State) })
	if len(list) == 0 {
		return nil
	}
	failures, err := w.failures(ctx, &job)
	if err := w.ofJob(ctx, e.Job, "job."+string(e.State), err); err != nil {
		return err
	}
	m := endOf(&job, e.State, e.At, failures, w.link(job.ID))
	return w.addAll(x, &m, list)
}

// addAll adds the deliveries of a message to some receivers.
func (w *Webhooks) addAll(x *store.Expansion, m *message, list []muster.Notify) error {
	now := muster.TimeOf(time.Now())
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

// link returns the page of a job, "" if the server does not know its own address.
func (w *Webhooks) link(job muster.JobID) string {
	if w.cfg.URL == "" {
		return ""
	}
	return w.cfg.URL + "/jobs/" + job.String()
}

func (w *Webhooks) failures(ctx context.Context, job *muster.Job) ([]failure, error) {
	if job.Counts[muster.Failed]+job.Counts[muster.TimedOut] == 0 {
		return nil, nil
	}
	tasks, _, err := w.cfg.Store.Tasks(ctx, store.TaskQuery{Job: job.ID, States: []muster.TaskState{muster.Failed, muster.TimedOut}, Limit: maxFailures})
	if err != nil {
		return nil, err
	}
	list := make([]failure, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		list[i] = failure{Task: t.ID, Reason: t.Reason, Message: short(t.Message, maxText), Worker: t.Worker}
	}
	return list, nil
}

// watch notifies the long waits of jobs.
func (l *loop) watch(ctx context.Context) error {
	now := muster.TimeOf(time.Now())
	projects := map[string][]muster.Notify{}
	watched := map[muster.JobID]bool{}
	for after := muster.JobID(0); ; {
		jobs, err := l.cfg.Store.Watched(ctx, after, page)
		if err != nil {
			return err
		}
		var x store.Expansion
		for i := range jobs {
			after = jobs[i].Job.ID
			watched[after] = true
			if err := l.watchJob(ctx, &x, &jobs[i], now, projects); err != nil {
				return err
			}
		}
		if len(x.Idle)+len(x.Deliveries) > 0 {
			if err := l.cfg.Store.Expand(ctx, x); err != nil {
				return err
			}
		}
		if len(jobs) < page {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.later {
		if !watched[id] {
			delete(l.later, id)
		}
	}
	return nil
}

// watchJob looks at a job that has not ended. It is idle if none of its tasks runs. One that never started is idle since it was made or,
// if it had ended, since it was retried.
func (w *Webhooks) watchJob(ctx context.Context, x *store.Expansion, k *store.WatchedJob, now muster.Time, projects map[string][]muster.Notify) error {
	c := k.Job.Counts
	if c[muster.Assigned]+c[muster.Running]+c[muster.Cancelling] > 0 {
		w.forget(k.Job.ID)
		if k.Idle.Since != 0 {
			x.Idle = append(x.Idle, store.Idle{Job: k.Job.ID})
		}
		return nil
	}
	idle := k.Idle
	if began := max(k.Job.CreatedAt, k.Job.RetriedAt); idle.Since < began { // or it is of a wait before the job's last end
		idle = store.Idle{Job: k.Job.ID, Since: began}
		if k.Job.StartedAt != 0 {
			idle.Since = now
			x.Idle = append(x.Idle, idle)
		}
	}
	w.mu.Lock()
	v := w.later[k.Job.ID]
	w.mu.Unlock()
	if v.since == idle.Since && now < v.at {
		return nil
	}
	next := now.Add(muster.Duration(time.Hour))
	job, asked, err := w.asked(ctx, k.Job.ID, projects)
	if err != nil {
		if err = w.ofJob(ctx, k.Job.ID, typeWaiting, err); err == nil {
			w.lookAgain(k.Job.ID, visit{at: next, since: idle.Since})
		}
		return err
	}
	var due []muster.Notify
	waited, told := now.Sub(idle.Since), idle.Told
	for _, n := range asked {
		after, wanted := n.Waits()
		switch {
		case !wanted || after <= idle.Told:
		case after <= waited:
			due, told = append(due, n), max(told, after)
		default:
			next = min(next, idle.Since.Add(after))
		}
	}
	w.lookAgain(k.Job.ID, visit{at: next, since: idle.Since})
	if len(due) == 0 {
		return nil
	}
	idle.Told = told
	x.Idle = append(x.Idle, idle)
	m := waitOf(&job, now, idle.Since, w.why(ctx, job.ID), w.link(job.ID))
	return w.addAll(x, &m, due)
}

// visit is when a job that waits since a time is looked at again.
type visit struct{ at, since muster.Time }

func (w *Webhooks) lookAgain(job muster.JobID, v visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later[job] = v
}

// forget makes the next round look at a job.
func (w *Webhooks) forget(job muster.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.later, job)
}

// why says why the first task of a job that could run waits, "" if that is not known.
func (w *Webhooks) why(ctx context.Context, job muster.JobID) string {
	ctx, cancel := context.WithTimeout(ctx, whyWithin)
	defer cancel()
	tasks, _, err := w.cfg.Store.Tasks(ctx, store.TaskQuery{Job: job, States: []muster.TaskState{muster.Queued}, Limit: 1})
	if err != nil || len(tasks) == 0 {
		return ""
	}
	why, err := w.cfg.Why(ctx, tasks[0].ID)
	if err != nil {
		return ""
	}
	return why
}
