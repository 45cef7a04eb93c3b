package sweeper_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// modelEngine decides about ended jobs as the engine does: one commit for each call, in order with those of clients.
type modelEngine struct {
	w *world
	p *process
}

func (e *modelEngine) Now() muster.Time { return e.p.clock.Add(muster.Duration(time.Since(e.p.start))) }

// change commits what of the ended jobs that are not kept, and returns those.
func (e *modelEngine) change(ctx context.Context, ids []muster.JobID, fill func(*store.Batch, []muster.JobID), done func(muster.JobID)) ([]muster.JobID, int, error) {
	if err := e.w.step(e.p, effectPause); err != nil {
		return nil, 0, err
	}
	ids = ids[:min(len(ids), 2)]
	chosen, err := e.commit(ctx, ids, fill, done)
	if err == nil {
		err = e.w.step(e.p, effectPause)
	}
	return chosen, len(ids), err
}

func (e *modelEngine) commit(ctx context.Context, ids []muster.JobID, fill func(*store.Batch, []muster.JobID), done func(muster.JobID)) (chosen []muster.JobID, err error) {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	list, err := e.p.store.ExistingJobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].State.Final() && list[i].KeptAt == 0 {
			chosen = append(chosen, list[i].ID)
		}
	}
	if len(chosen) == 0 {
		return nil, nil
	}
	b := &store.Batch{At: e.Now()}
	fill(b, chosen)
	if err := e.p.store.Commit(ctx, b); err != nil {
		return nil, err
	}
	for _, id := range chosen {
		done(id)
	}
	return chosen, nil
}

func (e *modelEngine) RemoveJobs(ctx context.Context, ids []muster.JobID) ([]muster.JobID, int, error) {
	return e.change(ctx, ids, func(b *store.Batch, ids []muster.JobID) { b.RemovedJobs = ids }, func(id muster.JobID) {
		delete(e.w.jobs, id)
		e.w.removed[id] = true
	})
}

func (e *modelEngine) ExpireLogs(ctx context.Context, ids []muster.JobID) ([]muster.JobID, int, error) {
	return e.change(ctx, ids, func(b *store.Batch, ids []muster.JobID) { b.ExpiredLogs = ids }, func(id muster.JobID) {
		if err := e.p.logs.Remove(ctx, id); err != nil && e.w.fatal == nil {
			e.w.fatal = err
		}
	})
}

func (e *modelEngine) ExpireArtifacts(ctx context.Context, ids []muster.JobID) ([]muster.JobID, int, error) {
	return e.change(ctx, ids, func(b *store.Batch, ids []muster.JobID) { b.ExpiredArtifacts = ids }, func(muster.JobID) {})
}

func (e *modelEngine) KeepJob(ctx context.Context, id muster.JobID, keep bool) error {
	e.w.mu.Lock()
	defer e.w.mu.Unlock()
	list, err := e.p.store.ExistingJobs(ctx, []muster.JobID{id})
	if err == nil && len(list) == 0 {
		err = muster.Errorf(muster.NotFound, "there is no job %s", id)
	}
	if err != nil {
		return err
	}
	k := store.JobKept{Job: id}
	if keep {
		k.At = e.Now()
	}
	return e.p.store.Commit(ctx, &store.Batch{Kept: []store.JobKept{k}})
}

func (e *modelEngine) RemoveDeparted(context.Context, []muster.WorkerID) ([]muster.WorkerID, error) {
	return nil, nil
}

func (e *modelEngine) Files(ctx context.Context, tree string) ([]store.Blob, error) {
	r, err := e.p.blobs.Open(ctx, tree)
	if err != nil {
		return nil, err
	}
	defer r.Close() // it was only read
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var list muster.Tree
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, muster.Errorf(muster.Invalid, "not a tree: %w", err)
	}
	files := make([]store.Blob, len(list.Files))
	for i, f := range list.Files {
		files[i] = store.Blob{SHA256: f.SHA256, Size: f.Size}
	}
	return files, nil
}

// references returns the blobs that a job needs, by what needs them.
func (w *world) references(j *model) (map[string][]string, error) {
	ctx := context.Background()
	job, err := w.store.Job(ctx, j.id)
	if err != nil {
		return nil, fmt.Errorf("job %s is lost: %w", j.id, err)
	}
	task, err := w.store.Task(ctx, muster.TaskID{Job: j.id})
	if err != nil {
		return nil, err
	}
	refs := map[string][]string{"folder": j.tree}
	if !task.State.Final() {
		refs["unreported artifacts"] = sums(j.artifacts...)
	}
	if job.ArtifactsRemovedAt != 0 && task.State.Final() {
		return refs, nil
	}
	if task.State != muster.Succeeded {
		refs["checkpoint"] = j.saved
	}
	attempts, err := w.store.Attempts(ctx, task.ID)
	for i := range attempts {
		for _, a := range attempts[i].Artifacts {
			refs["artifacts"] = append(refs["artifacts"], a.SHA256)
		}
	}
	return refs, err
}

// check verifies that nothing is missing.
func (w *world) check() error {
	ctx := context.Background()
	for _, j := range w.jobs {
		refs, err := w.references(j)
		if err != nil {
			return err
		}
		for what, list := range refs {
			for _, sum := range list {
				if _, err := w.blobs.Stat(ctx, sum); err != nil {
					return fmt.Errorf("a file of the %s of job %s (ended: %t) is missing: %w", what, j.id, j.ended, err)
				}
			}
		}
		job, err := w.store.Job(ctx, j.id)
		if err != nil {
			return err
		}
		size, err := w.logs.Size(ctx, muster.AttemptID{Task: muster.TaskID{Job: j.id}, N: 1})
		if err == nil && size == 0 && job.LogsRemovedAt == 0 && j.attempts == 0 && j.ended {
			err = fmt.Errorf("the logs of job %s are missing", j.id)
		}
		if err != nil {
			return err
		}
	}
	for id := range w.removed {
		if _, err := w.store.Job(ctx, id); muster.CodeOf(err) != muster.NotFound {
			return fmt.Errorf("the removed job %s is there: %w", id, err)
		}
	}
	return nil
}

// checkClean verifies that nothing is left of what was removed.
func (w *world) checkClean() error {
	ctx := context.Background()
	needed := map[string]bool{}
	for _, j := range w.jobs {
		refs, err := w.references(j)
		if err != nil {
			return err
		}
		for _, list := range refs {
			for _, sum := range list {
				needed[sum] = true
			}
		}
	}
	files, err := w.blobs.Files(ctx, "", 1_000_000)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !needed[f.SHA256] {
			return fmt.Errorf("the file %s is left, which nothing needs", f.SHA256)
		}
	}
	granted, err := w.store.GrantedBlobs(ctx, "", 1_000_000)
	if err != nil {
		return err
	}
	for _, sum := range granted {
		if !needed[sum] {
			return fmt.Errorf("a grant of %s is left, which nothing needs", sum)
		}
	}
	waiting, _, err := w.store.RemovedJobs(ctx, 0, 10)
	if err != nil || len(waiting) > 0 {
		return fmt.Errorf("rows of the jobs %v are left: %w", waiting, err)
	}
	dirs, err := w.logs.Jobs(0, 1_000_000)
	if i := slices.IndexFunc(dirs, func(id muster.JobID) bool { return w.jobs[id] == nil }); err == nil && i >= 0 {
		err = fmt.Errorf("logs of the removed job %s are left", dirs[i])
	}
	return err
}
