package engine

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sched/fleet"
)

// Fleet returns all workers and the work of all projects. Callers share the snapshot and
// must not change it.
func (e *Engine) Fleet(ctx context.Context) (*fleet.Snapshot, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, b *batch) (*fleet.Snapshot, error) {
		if b.fleet == nil {
			p := st.FleetSnapshot(now)
			b.fleet = &p
		}
		return b.fleet, nil
	})
}

// Workload returns the work of one project.
func (e *Engine) Workload(ctx context.Context, project string) (fleet.Workload, error) {
	return call(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (fleet.Workload, error) {
		return st.Workload(now, project), nil
	})
}
