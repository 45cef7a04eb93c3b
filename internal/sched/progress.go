package sched

import (
	"time"

	"github.com/muster-dev/muster"
)

// saveProgressEvery is how long progress may be in memory only. A row that is written for another reason
// includes it.
const saveProgressEvery = muster.Duration(10 * time.Second)

// progress records what a running attempt reports. It is published at once and written later, except
// for artifacts, which must not be lost.
func (s *State) progress(now muster.Time, ev Progressed) error {
	p := &ev.Progress
	t, err := s.current(ev.Worker, p.Attempt)
	if err != nil {
		return err
	}
	if err := checkProgress(p); err != nil {
		return err
	}
	s.touch(now, t.Worker)
	if len(p.Artifacts) > 0 {
		t.Row.Artifacts = p.Artifacts
		s.changedTask(t)
	} else {
		s.deferProgress(now, t)
	}
	if p.Progress != nil {
		t.Row.Progress = p.Progress
	}
	if p.Step != nil {
		t.Row.Step = *p.Step
	}
	if len(p.Metrics) > 0 {
		t.Row.Metrics = mergeMetrics(t.Row.Metrics, p.Metrics)
	}
	if !t.Dirty {
		s.out.progress = append(s.out.progress, Progress{
			Task: t.Row.ID, Attempt: t.Row.Attempt, Progress: t.Row.Progress, Step: t.Row.Step, Metrics: t.Row.Metrics,
		})
	}
	s.publishTask(now, t)
	return nil
}

// deferProgress schedules a write of t's row within saveProgressEvery.
func (s *State) deferProgress(now muster.Time, t *task) {
	if t.Dirty || t.StoredProgress != nil {
		return
	}
	t.StoredProgress = &progressSnapshot{Progress: t.Row.Progress, Step: t.Row.Step, Metrics: t.Row.Metrics}
	s.dirtyProgress = append(s.dirtyProgress, t)
	if s.progressFlushAt == 0 {
		s.progressFlushAt = now.Add(saveProgressEvery)
	}
}

// saveProgress marks all rows dirty whose progress is in memory only.
func (s *State) saveProgress() {
	for _, t := range s.dirtyProgress {
		if t.StoredProgress != nil {
			s.changedTask(t)
		}
	}
	clear(s.dirtyProgress)
	s.dirtyProgress, s.progressFlushAt = s.dirtyProgress[:0], 0
}
