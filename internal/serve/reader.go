package serve

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// reader is the store as clients see it: with the latest progress of running tasks.
type reader struct {
	*sqlite.Store

	engine *engine.Engine
}

// Task implements store.Reader.
func (r reader) Task(ctx context.Context, id muster.TaskID) (muster.Task, error) {
	t, err := r.Store.Task(ctx, id)
	if err == nil {
		r.engine.Latest(&t)
	}
	return t, err
}

// Tasks implements store.Reader.
func (r reader) Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error) {
	tasks, next, err := r.Store.Tasks(ctx, q)
	for i := range tasks {
		r.engine.Latest(&tasks[i])
	}
	return tasks, next, err
}
