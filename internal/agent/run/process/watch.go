package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

const (
	defaultGrace = 10 * time.Second
	eventsEvery  = 250 * time.Millisecond // between two looks at $MUSTER_EVENTS
	pipesWait    = 2 * time.Second        // for output after the main process has exited
	sweepWait    = 5 * time.Second        // for killed processes to be gone
	stuckAfter   = 30 * time.Second       // after SIGKILL a process that is still there is worth a word
)

// exit is how a main process ended.
type exit struct {
	code   int    // 128+n for signal n
	signal string // its name, "" for none
	killed bool   // by SIGKILL
	wall   time.Duration
	cpu    time.Duration // with the children that it waited for
	maxRSS muster.Size   // of the largest of these; 0 if unknown
}

// watch waits for the end of the main process, stops it when ctx ends, and
// returns when nothing of the task is left.
func (a *Attempt) watch(ctx context.Context) error {
	done := make(chan exit, 1)
	a.pipes.wg.Go(func() { done <- a.proc.wait() })
	looks := time.NewTicker(eventsEvery)
	defer looks.Stop()
	var (
		stop   = ctx.Done()
		kill   <-chan time.Time
		stuck  <-chan time.Time
		broken = a.log.broken()
	)
	for !a.exited {
		select {
		case a.exit = <-done:
			a.exited = true
		case <-looks.C:
			a.readEvents()
		case <-stop:
			stop, a.stopped = nil, told(ctx)
			a.proc.signal(a.Task.Spec.Kill.Signal)
			kill = time.After(a.grace())
		case <-broken:
			broken = nil
			a.e.env.Kin().Kill(a.kin)
		case <-kill:
			a.e.env.Kin().Kill(a.kin)
			stuck = time.After(stuckAfter)
		case <-stuck:
			a.e.env.Log.Error("a killed task does not end: its process waits in the kernel",
				slog.String("attempt", a.Task.Attempt.String()), slog.Int("pid", a.proc.pid))
		}
	}
	a.exit.wall = time.Since(a.started)
	if n := a.e.env.Kin().Ended(a.kin, sweepWait); n > 0 {
		a.e.env.Log.Error("processes of a task do not end, even when killed",
			slog.String("attempt", a.Task.Attempt.String()), slog.Int("processes", n))
	}
	a.pipes.finish(pipesWait)
	a.readEvents()
	return nil
}

func (a *Attempt) grace() time.Duration {
	if g := a.Task.Spec.Kill.Grace.Std(); g > 0 {
		return g
	}
	return defaultGrace
}
