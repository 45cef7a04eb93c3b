package wire

import "github.com/muster-dev/muster"

// TaskTimeline returns what the rows of a task tell of its life.
func TaskTimeline(t *muster.Task, attempts []muster.Attempt) []TaskEvent {
	var list []TaskEvent
	add := func(e TaskEvent) {
		if e.At != 0 {
			list = append(list, e)
		}
	}
	add(TaskEvent{At: t.CreatedAt, Type: EventCreated})
	queued := t.QueuedAt // of the last time that it was queued
	for i := range attempts {
		a := &attempts[i]
		if queued != 0 && a.AssignedAt >= queued {
			add(TaskEvent{At: queued, Type: EventQueued})
			queued = 0
		}
		add(TaskEvent{At: a.AssignedAt, Type: EventAssigned, Attempt: a.ID.N, Worker: a.Worker})
		add(TaskEvent{At: a.StartedAt, Type: EventStarted, Attempt: a.ID.N, Worker: a.Worker})
		if a.Outcome != muster.AttemptOpen {
			add(TaskEvent{At: a.FinishedAt, Type: EventEnded, Attempt: a.ID.N, Worker: a.Worker, Outcome: a.Outcome, Reason: a.Reason, Message: a.Message})
		}
	}
	add(TaskEvent{At: queued, Type: EventQueued})
	if !t.State.Final() {
		add(TaskEvent{At: t.NotBefore, Type: EventRetry, Message: "the next attempt starts then at the earliest"})
		return list
	}
	e := TaskEvent{At: t.FinishedAt, Type: EventFinished, Reason: t.Reason, Message: t.State.String()}
	if t.Message != "" {
		e.Message += ": " + t.Message
	}
	add(e)
	return list
}
