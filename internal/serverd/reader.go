package serverd

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
)

// namedReader adds the latest progress of running tasks and the names of keys and workers to the store's rows.
type namedReader struct {
	*sqlite.Store

	engine *engine.Engine
}

// Job implements store.Reader.
func (r namedReader) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	job, err := r.Store.Job(ctx, id)
	if err != nil {
		return job, err
	}
	jobs := []muster.Job{job}
	err = r.addNames(ctx, jobs)
	return jobs[0], err
}

// Jobs implements store.Reader.
func (r namedReader) Jobs(ctx context.Context, q store.JobQuery) ([]muster.Job, string, error) {
	jobs, next, err := r.Store.Jobs(ctx, q)
	if err != nil {
		return nil, "", err
	}
	return jobs, next, r.addNames(ctx, jobs)
}

// addNames adds progress and owner names to jobs. A link to one job does not show its owner.
func (r namedReader) addNames(ctx context.Context, jobs []muster.Job) error {
	names := map[string]string{}
	for i := range jobs {
		j := &jobs[i]
		r.engine.ApplyJobProgress(j)
		for k := range j.Groups {
			g := &j.Groups[k]
			g.State = g.Counts.StageState()
			g.Unsized = j.Spec != nil && g.Index < len(j.Spec.Tasks) && j.Spec.Tasks[g.Index].DynamicArray() && g.Resolved == nil && g.FinishedAt == 0
		}
		if j.Owner != "" {
			names[j.Owner] = ""
		}
	}
	if caller.FromContext(ctx).Job != 0 {
		return nil
	}
	if err := r.KeyNames(ctx, names); err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].OwnerName = names[jobs[i].Owner]
	}
	return nil
}

// Task implements store.Reader.
func (r namedReader) Task(ctx context.Context, id muster.TaskID) (muster.Task, error) {
	t, err := r.Store.Task(ctx, id)
	if err != nil {
		return t, err
	}
	r.engine.ApplyProgress(&t)
	return t, r.nameWorkers(ctx, 1, func(int) (muster.WorkerID, *string) { return t.Worker, &t.WorkerName })
}

// Tasks implements store.Reader.
func (r namedReader) Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error) {
	tasks, next, err := r.Store.Tasks(ctx, q)
	if err != nil {
		return nil, "", err
	}
	for i := range tasks {
		r.engine.ApplyProgress(&tasks[i])
	}
	return tasks, next, r.nameWorkers(ctx, len(tasks), func(i int) (muster.WorkerID, *string) { return tasks[i].Worker, &tasks[i].WorkerName })
}

// Attempts implements store.Reader.
func (r namedReader) Attempts(ctx context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	list, err := r.Store.Attempts(ctx, id)
	if err != nil {
		return nil, err
	}
	return list, r.nameWorkers(ctx, len(list), func(i int) (muster.WorkerID, *string) { return list[i].Worker, &list[i].WorkerName })
}

// LateReports implements store.LateReportReader.
func (r namedReader) LateReports(ctx context.Context, id muster.JobID) ([]muster.LateReport, error) {
	list, err := r.Store.LateReports(ctx, id)
	if err != nil {
		return nil, err
	}
	return list, r.nameWorkers(ctx, len(list), func(i int) (muster.WorkerID, *string) { return list[i].Worker, &list[i].WorkerName })
}

// nameWorkers sets the names of workers if the caller may read workers. workerOf returns the worker of the i-th of n rows, and
// the field for its name.
func (r namedReader) nameWorkers(ctx context.Context, n int, workerOf func(i int) (muster.WorkerID, *string)) error {
	if refused := auth.Can(caller.FromContext(ctx), auth.ReadWorkers, auth.Object{}); refused != nil {
		return nil //nolint:nilerr // the rows have no names then
	}
	names := map[string]string{}
	for i := range n {
		if id, _ := workerOf(i); id != "" {
			names[string(id)] = ""
		}
	}
	if err := r.WorkerNames(ctx, names); err != nil {
		return err
	}
	for i := range n {
		id, name := workerOf(i)
		*name = names[string(id)]
	}
	return nil
}
