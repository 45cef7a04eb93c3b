package effect

import "github.com/muster-dev/muster"

// TaskEvent says how a task stands.
func TaskEvent(now muster.Time, r *muster.Task) muster.Event {
	d := &muster.TaskDetail{Attempt: r.Attempt, Reason: r.Reason, Progress: r.Progress, Step: r.Step, Metrics: r.Metrics}
	if !r.State.Final() {
		d.Artifacts = r.Artifacts // few: see muster.MaxLiveFiles
	}
	return muster.Event{Type: muster.EventTask, At: now, Job: r.ID.Job, Task: &r.ID, State: r.State.String(), Worker: r.Worker, Detail: d}
}

// JobEvent says how a job stands.
func JobEvent(now muster.Time, r *muster.Job) muster.Event {
	return muster.Event{Type: muster.EventJob, At: now, Job: r.ID, State: string(r.State)}
}

// WorkerEvent says how a worker stands, and why it is given no tasks though nobody paused it.
func WorkerEvent(now muster.Time, r *muster.Worker, reason string) muster.Event {
	return muster.Event{Type: muster.EventWorker, At: now, Worker: r.ID, State: string(r.State), Constrained: reason}
}
