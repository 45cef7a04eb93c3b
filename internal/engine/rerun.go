package engine

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/sched"
	"github.com/muster-dev/muster/internal/store"
)

// Rerun is Submit for a job that takes the results of an earlier job of its project for the stages before one of them: see dag.Reusable. It
// reads the rows as Retry does.
func (e *Engine) Rerun(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, of muster.JobID, from string) (muster.JobID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := e.watchJob(ctx, of)
	defer o.closed.Store(true)
	if err != nil {
		return 0, err
	}
	reused, err := e.reusedTasks(ctx, spec, of, from)
	if err != nil {
		return 0, err
	}
	return e.submit(ctx, spec, by, submission{reused: func() (map[int]sched.Reused, error) {
		if !o.changed {
			return reused, nil
		}
		return e.reusedTasks(ctx, spec, of, from)
	}})
}

// reusedTasks reads the tasks of the stages that a job reuses.
func (e *Engine) reusedTasks(ctx context.Context, spec *muster.Spec, of muster.JobID, from string) (map[int]sched.Reused, error) {
	job, err := e.cfg.Store.Job(ctx, of)
	if err != nil {
		return nil, err
	}
	if job.Project != spec.Project {
		return nil, muster.Errorf(muster.NotFound, "project %s has no job %s: a job is run again in its project", muster.Truncate(spec.Project), of)
	}
	stages, err := dag.Reusable(&job, spec, from)
	if err != nil {
		return nil, err
	}
	groups := make(map[string]*muster.Group, len(job.Groups))
	for i := range job.Groups {
		groups[job.Groups[i].Name] = &job.Groups[i]
	}
	q, n := store.TaskQuery{Job: of, StoredOnly: true, Limit: retryPage}, 0
	reused, stageOf := make(map[int]sched.Reused, len(stages)), make(map[int]int, len(stages))
	for _, i := range stages {
		g := groups[spec.Tasks[i].Name]
		if n += g.Size; n > maxMaterialized {
			return nil, muster.Errorf(muster.TooLarge, "the new job would reuse more than %d tasks of job %s: submit it as a whole", maxMaterialized, of)
		}
		q.Spans = append(q.Spans, store.Span{First: g.First, Last: g.First + g.Size - 1})
		reused[i], stageOf[g.Index] = sched.Reused{Resolved: g.Resolved}, i
	}
	if len(stages) == 0 {
		return reused, nil
	}
	tasks, err := e.readTasks(ctx, q, maxMaterialized)
	for _, t := range tasks {
		i := stageOf[t.Group]
		r := reused[i]
		r.Tasks = append(r.Tasks, t)
		reused[i] = r
	}
	return reused, err
}
