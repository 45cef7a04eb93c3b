package engine

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// Fleet returns all workers and the work of all projects. Callers share the snapshot and
// must not change it.
func (e *Engine) Fleet(ctx context.Context) (*sched.FleetSnapshot, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, b *batch) (*sched.FleetSnapshot, error) {
		if b.fleet == nil {
			p := st.FleetSnapshot(now)
			b.fleet = &p
		}
		return b.fleet, nil
	})
}

// Workload returns the work of one project.
func (e *Engine) Workload(ctx context.Context, project string) (sched.Workload, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (sched.Workload, error) {
		return st.Workload(now, project), nil
	})
}
