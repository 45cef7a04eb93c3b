package engine

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/sched/fleet"
)

// Fleet returns all workers and the work of all projects, for those who show them. Callers
// share the picture: it must not be changed.
func (e *Engine) Fleet(ctx context.Context) (*fleet.Picture, error) {
	return ask(ctx, e, false, func(st *sched.State, now muster.Time, b *batch) (*fleet.Picture, error) {
		if b.picture == nil {
			p := st.Picture(now)
			b.picture = &p
		}
		return b.picture, nil
	})
}

// Work returns the tasks of one project by state, how they move, and the one that has been queued for longest.
func (e *Engine) Work(ctx context.Context, project string) (fleet.Work, error) {
	return ask(ctx, e, false, func(st *sched.State, now muster.Time, _ *batch) (fleet.Work, error) {
		return st.Work(now, project), nil
	})
}
