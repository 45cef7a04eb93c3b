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
	s.touch(now, t.worker)
	if len(p.Artifacts) > 0 {
		t.row.Artifacts = p.Artifacts
		s.changedTask(t)
	} else {
		s.deferProgress(now, t)
	}
	if p.Progress != nil {
		t.row.Progress = p.Progress
	}
	if p.Step != nil {
		t.row.Step = *p.Step
	}
	if len(p.Metrics) > 0 {
		t.row.Metrics = mergeMetrics(t.row.Metrics, p.Metrics)
	}
	if !t.dirty {
		s.out.progress = append(s.out.progress, Progress{
			Task: t.row.ID, Attempt: t.row.Attempt, Progress: t.row.Progress, Step: t.row.Step, Metrics: t.row.Metrics,
		})
	}
	s.publishTask(now, t)
	return nil
}

// deferProgress schedules a write of t's row within saveProgressEvery.
func (s *State) deferProgress(now muster.Time, t *task) {
	if t.dirty || t.storedProgress != nil {
		return
	}
	t.storedProgress = &progressSnapshot{progress: t.row.Progress, step: t.row.Step, metrics: t.row.Metrics}
	s.dirtyProgress = append(s.dirtyProgress, t)
	if s.progressFlushAt == 0 {
		s.progressFlushAt = now.Add(saveProgressEvery)
	}
}

// saveProgress marks all rows dirty whose progress is in memory only.
func (s *State) saveProgress() {
	for _, t := range s.dirtyProgress {
		if t.storedProgress != nil {
			s.changedTask(t)
		}
	}
	clear(s.dirtyProgress)
	s.dirtyProgress, s.progressFlushAt = s.dirtyProgress[:0], 0
}
