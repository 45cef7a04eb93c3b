package process

import (
	"context"
	"encoding/json"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/live"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// watch follows the process until nothing of the task is left, and has it stopped
// when ctx ends.
func (a *Attempt) watch(ctx context.Context) error {
	measured := func() muster.Usage { return muster.Usage{} }
	if m := a.e.env.Meter; m != nil && a.proc.Exit() == nil {
		measured = m.Watch(&run.Subject{Task: a.Task, Pid: a.proc.Pid(), Confine: a.confine, Folders: a.folders()}, watcher{a})
	}
	a.follow()
	defer a.unfollow()
	defer live.Follow(ctx, &live.Source{
		Attempt: a.Task.Attempt, Out: a.liveOut, Upload: a.e.env.Transfer,
		Tell: a.sink.Progress, Say: a.Say, Log: a.e.env.Log,
	})()
	stop := ctx.Done()
	for a.exit == nil {
		select {
		case <-a.proc.Done():
			a.exit = a.proc.Exit()
		case <-stop:
			if left(ctx) {
				measured()
				return run.ErrLeave
			}
			stop = nil
			why := run.StoppedBy(ctx)
			a.proc.Stop(why, a.how(why))
		}
	}
	a.metered = measured()
	if a.e.env.Limits != nil && a.confine != nil {
		a.counted = a.e.env.Limits.Counted(a.confine)
	}
	return nil
}

// how says how the task is stopped for a reason, where that is not as its spec says:
// one that has to make room saves its state first.
func (a *Attempt) how(why *run.Stopped) muster.Kill {
	c := a.Task.Spec.Checkpoint
	if c == nil || why.Reason != muster.Preempted {
		return muster.Kill{}
	}
	return muster.Kill{Signal: c.Signal, Grace: c.Grace}
}

// watcher is what the meter tells of an attempt.
type watcher struct{ *Attempt }

// Sampled implements run.Watcher.
func (w watcher) Sampled(s muster.Sample) {
	b, err := json.Marshal(s)
	if err != nil {
		return // a reading that is no number is none
	}
	w.log.record(tasklog.Usage, b)
}

// Warned implements run.Watcher.
func (w watcher) Warned(line string) { w.Say(line) }

// Exceeded implements run.Watcher.
func (w watcher) Exceeded(why *run.Stopped) { w.proc.Stop(why, muster.Kill{}) }
