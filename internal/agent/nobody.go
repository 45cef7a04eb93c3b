package agent

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// nobody is the supervisor of a worker without one: nothing outlives it.
type nobody struct{}

func (nobody) Start(context.Context, *run.Start, run.Sink) (run.Proc, error) {
	return nil, run.Failf(muster.WorkerInternal, "this worker has no supervisor")
}

func (nobody) Adopt(*run.Held, run.Sink) (run.Proc, error) {
	return nil, run.Failf(muster.WorkerInternal, "this worker has no supervisor")
}

func (nobody) Held() []run.Held                    { return nil }
func (nobody) Contact(time.Duration)               {}
func (nobody) Contacted() time.Duration            { return 0 }
func (nobody) Freeze(muster.AttemptID, bool) error { return nil }
func (nobody) Forget(...muster.AttemptID)          {}
