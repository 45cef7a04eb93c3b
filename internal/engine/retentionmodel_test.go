package engine_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// clients are concurrent users of an engine, and what they know about its jobs.
type clients struct {
	*env

	mu      sync.Mutex
	jobs    []muster.JobID // all that were submitted
	removed map[muster.JobID]bool
	unsure  map[muster.JobID]bool // a removal failed, or may have been made
}

// keptForever reports whether the clients keep a job as soon as it exists, and never end that.
func keptForever(id muster.JobID) bool { return id%5 == 0 }

// pick returns some jobs, with repetitions.
func (c *clients) pick(rng *rand.Rand, n int) (ids []muster.JobID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		if len(c.jobs) > 0 {
			ids = append(ids, c.jobs[max(0, len(c.jobs)-1-rng.IntN(12))])
		}
	}
	return ids
}

// act does one random thing. Refusals are expected.
func (c *clients) act(ctx context.Context, t *testing.T, rng *rand.Rand) {
	t.Helper()
	ids := c.pick(rng, 1+rng.IntN(4))
	if len(ids) == 0 || rng.IntN(6) == 0 {
		id, err := c.Submit(ctx, spec(1+rng.Int64N(5)), store.IdempotencyKey{})
		if err != nil {
			return
		}
		if keptForever(id) && c.KeepJob(ctx, id, true) != nil && c.KeepJob(ctx, id, true) != nil {
			return // two failed commits: the job is in no list
		}
		c.mu.Lock()
		c.jobs = append(c.jobs, id)
		c.mu.Unlock()
		return
	}
	switch id := ids[0]; rng.IntN(9) {
	case 0, 1, 2:
		_ = c.Cancel(ctx, id, nil)
	case 3:
		_ = c.Retry(ctx, id, nil)
	case 4:
		if !keptForever(id) {
			_ = c.KeepJob(ctx, id, rng.IntN(3) == 0)
		}
	case 5:
		_, _, _ = c.ExpireLogs(ctx, ids)
	case 6:
		if rng.IntN(4) == 0 {
			_, _, _ = c.ExpireArtifacts(ctx, ids)
		}
	default:
		list, _, err := c.RemoveJobs(ctx, ids)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, removed := range list {
			if c.removed[removed] {
				t.Errorf("job %s was removed twice", removed)
			}
			c.removed[removed] = true
		}
		if err != nil {
			for _, id := range ids {
				c.unsure[id] = true
			}
		}
	}
}

// check compares the stored jobs with what the clients know.
func (c *clients) check(t *testing.T) {
	t.Helper()
	var total int64
	waiting, _, err := c.store.RemovedJobs(t.Context(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.jobs {
		job, err := c.store.Job(t.Context(), id)
		switch {
		case err == nil && c.removed[id]:
			t.Errorf("job %s was removed and is there, %s", id, job.State)
		case keptForever(id) && c.removed[id]:
			t.Errorf("job %s was kept and is removed", id)
			continue
		case muster.CodeOf(err) == muster.NotFound && (c.removed[id] || c.unsure[id] && !keptForever(id)):
			if !slices.Contains(waiting, id) {
				t.Errorf("the rows of job %s are forgotten", id)
			}
			continue
		case err != nil:
			t.Errorf("job %s: %v", id, err)
			continue
		}
		total += job.Counts.Total()
		if keptForever(id) && job.KeptAt == 0 {
			t.Errorf("job %s is not kept any more", id)
		}
		if at := job.ArtifactsRemovedAt; at != 0 && (!job.State.Final() || job.RetriedAt > at) {
			t.Errorf("job %s was retried after its artifacts expired", id)
		}
		if job.Counts.Total() != int64(job.Groups[0].Size) || job.Spec == nil {
			t.Errorf("job %s lacks rows: %+v", id, job)
		}
		tasks, _, err := c.store.Tasks(t.Context(), store.TaskQuery{Job: id, Limit: 10})
		if err != nil || len(tasks) != job.Groups[0].Size {
			t.Errorf("job %s has %d of %d tasks, %v", id, len(tasks), job.Groups[0].Size, err)
		}
	}
	stored, _, err := c.store.Jobs(t.Context(), store.JobQuery{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	var all int64
	for i := range stored {
		all += stored[i].Counts.Total()
	}
	if got := c.total(t); got != all || all < total {
		t.Errorf("%d tasks are counted, the jobs have %d, those of the clients %d", got, all, total)
	}
}

// TestConcurrentRetention has clients submit, cancel, retry, keep, remove and expire the same jobs at the same time, with failed commits and restarts, and
// deletes rows meanwhile: a removed job never returns, a kept or live one never loses anything, and the totals are right.
func TestConcurrentRetention(t *testing.T) {
	rounds, steps := 4, 60
	if testing.Short() {
		rounds = 2
	}
	c := &clients{env: start(t), removed: map[muster.JobID]bool{}, unsure: map[muster.JobID]bool{}}
	for round := range uint64(rounds) {
		var running sync.WaitGroup
		for client := range uint64(4) {
			running.Go(func() {
				rng := rand.New(rand.NewPCG(round, client))
				for range steps {
					if client == 0 && rng.IntN(20) == 0 {
						c.fault.FailCommit(1)
					}
					c.act(t.Context(), t, rng)
				}
			})
		}
		running.Wait()
		c.eventually(t) // the engine has reloaded after the last failed commit
		c.check(t)
		c.env = c.restart(t)
		c.check(t)
	}
	if len(c.removed) == 0 || len(c.removed) > len(c.jobs)*9/10 {
		t.Errorf("%d of %d jobs were removed", len(c.removed), len(c.jobs))
	}
	for ids := c.jobs; len(ids) > 0; {
		r, err := c.store.DeleteRemoved(t.Context(), ids, 7)
		if err != nil {
			t.Fatal(err)
		}
		ids = ids[r.Jobs:]
	}
	if left, _, err := c.store.RemovedJobs(t.Context(), 0, 10_000); err != nil || len(left) > 0 {
		t.Errorf("%d removals are left, %v", len(left), err)
	}
}
