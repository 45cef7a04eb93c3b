package effect

import "github.com/muster-dev/muster"

// TaskEvent returns the event that publishes a task's state.
func TaskEvent(now muster.Time, r *muster.Task) muster.Event {
	d := &muster.TaskDetail{Attempt: r.Attempt, Reason: r.Reason, Progress: r.Progress, Step: r.Step, Metrics: r.Metrics}
	if !r.State.Final() {
		d.Artifacts = r.Artifacts // few: see muster.MaxLiveFiles
	}
	return muster.Event{Type: muster.EventTask, At: now, Job: r.ID.Job, Task: &r.ID, State: r.State.String(), Worker: r.Worker, Detail: d}
}

// JobEvent returns the event that publishes a job's state.
func JobEvent(now muster.Time, r *muster.Job) muster.Event {
	return muster.Event{Type: muster.EventJob, At: now, Job: r.ID, State: string(r.State)}
}

// WorkerEvent returns the event that publishes a worker's state. reason is why it gets no tasks though it is active.
func WorkerEvent(now muster.Time, r *muster.Worker, reason string) muster.Event {
	return muster.Event{Type: muster.EventWorker, At: now, Worker: r.ID, State: string(r.State), Constrained: reason}
}
