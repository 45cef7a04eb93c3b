package sweeper

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
)

// cutoff is a time on the clock of Blobs.
type cutoff struct{ time time.Time }

// sweep deletes artifacts that the policies do not keep, and then blobs without references.
func (s *Sweeper) sweep(ctx context.Context, q PruneQuery, act action) error {
	if err := s.expireArtifacts(ctx, q, act); err != nil {
		return err
	}
	if s.Server.Uploads.Unlimited() {
		return nil
	}
	begin := s.Blobs.Now()
	m, err := s.mark(ctx, act.paced())
	if err != nil {
		return err
	}
	if err := s.unmarkedFiles(ctx, begin, m, act); err != nil {
		return err
	}
	if r, ok := act.(*remover); ok {
		return r.dropGrants(ctx, m)
	}
	return nil
}

// jobFiles is the artifacts and checkpoints of an ended job.
type jobFiles struct {
	job   muster.JobID
	ended muster.Time
	bytes muster.Size
}

// jobsFiles are the jobs of one project whose artifacts a limit may not keep.
type jobsFiles struct {
	limit   retention.Limit
	list    []jobFiles // sorted and merged by finish; only jobs over the age if that is the only limit
	pending jobFiles   // of the job that is being read
}

// expireArtifacts finds artifacts and checkpoints of ended jobs that the policies of their projects do not keep.
func (s *Sweeper) expireArtifacts(ctx context.Context, q PruneQuery, act action) error {
	p, err := s.loadPolicies(ctx, q.Policy)
	if err != nil {
		return err
	}
	now := s.Engine.Now()
	projects := map[string]*jobsFiles{}
	err = s.eachResult(ctx, act.paced(), func(ref *store.BlobRef) error {
		if ref.EndedAt == 0 || ref.Kept || q.Project != "" && ref.Project != q.Project {
			return nil
		}
		j := projects[ref.Project]
		if j == nil {
			j = &jobsFiles{limit: p.limit(p.of(ref.Project).Artifacts, q.Policy.Artifacts)}
			projects[ref.Project] = j
		}
		if j.limit.Unlimited() || j.limit.Number == 0 && j.limit.Bytes == 0 && now.Sub(ref.EndedAt) <= j.limit.Age {
			return nil
		}
		bytes, err := s.refBytes(ctx, ref, j.limit.Bytes > 0 || !act.paced())
		if err != nil {
			return err
		}
		if j.pending.job != ref.Job {
			j.flush()
			j.pending = jobFiles{job: ref.Job, ended: ref.EndedAt}
		}
		j.pending.bytes += bytes
		return nil
	})
	if err != nil {
		return err
	}
	for _, j := range projects {
		remove := j.finish(now)
		for batch := range slices.Chunk(remove, jobBatch) {
			if err := act.artifacts(ctx, batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *jobsFiles) flush() {
	if j.pending.job != 0 {
		j.list = append(j.list, j.pending)
	}
	j.pending = jobFiles{}
}

// finish returns the jobs that the limit does not keep, the oldest first.
func (j *jobsFiles) finish(now muster.Time) []jobFiles {
	j.flush()
	slices.SortFunc(j.list, func(a, b jobFiles) int { return cmp.Or(cmp.Compare(a.ended, b.ended), cmp.Compare(a.job, b.job)) })
	merged := j.list[:0]
	var total retention.Total
	for _, f := range j.list {
		total.Bytes += f.bytes
		if n := len(merged); n > 0 && merged[n-1].job == f.job {
			merged[n-1].bytes += f.bytes
			continue
		}
		merged = append(merged, f)
	}
	total.Number = int64(len(merged))
	budget := retention.NewBudget(j.limit, now, total)
	return slices.DeleteFunc(merged, func(f jobFiles) bool { return !budget.Remove(retention.Entry{Ended: f.ended, Bytes: f.bytes}) })
}

// refBytes returns the size of a row's files, of those of trees only if asked: each must be read.
func (s *Sweeper) refBytes(ctx context.Context, ref *store.BlobRef, trees bool) (sum muster.Size, err error) {
	for _, b := range ref.Blobs {
		sum += muster.Size(b.Size)
	}
	for _, tree := range ref.Trees {
		if !trees {
			break
		}
		files, err := s.treeFiles(ctx, tree)
		if err != nil {
			return 0, err
		}
		for i := range files {
			sum += muster.Size(files[i].Size)
		}
	}
	return sum, nil
}

// unmarkedFiles finds the files that are not marked and that the policy of uploads does not keep.
func (s *Sweeper) unmarkedFiles(ctx context.Context, begin time.Time, m *marks, act action) error {
	l := s.Server.Uploads
	now := muster.NewTime(begin)
	grace := cutoff{begin.Add(-retention.MinGrace.Std())}
	counted := l.Number > 0 || l.Bytes > 0
	if l.Age > 0 {
		l.Age = max(l.Age, retention.MinGrace)
	}
	since := grace
	if !counted {
		since = cutoff{begin.Add(-l.Age.Std())}
	}
	var list []blob.File // all unmarked ones, if they are counted
	for after := ""; ; {
		start := time.Now()
		page, err := s.Blobs.Files(ctx, after, pageSize)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			after = page[len(page)-1].SHA256
		}
		last := len(page) < pageSize
		page = slices.DeleteFunc(page, func(f blob.File) bool { return m.has(f.SHA256) || !counted && !f.At.Before(since.time) })
		if counted {
			list = append(list, page...)
		} else if err := eachBatch(ctx, page, since, act); err != nil {
			return err
		}
		if last {
			break
		}
		if err := rest(ctx, act.paced(), start); err != nil {
			return err
		}
	}
	slices.SortFunc(list, func(a, b blob.File) int { return a.At.Compare(b.At) })
	total := retention.Total{Number: int64(len(list))}
	for i := range list {
		total.Bytes += muster.Size(list[i].Size)
	}
	budget := retention.NewBudget(l, now, total)
	list = slices.DeleteFunc(list, func(f blob.File) bool {
		return !f.At.Before(since.time) || !budget.Remove(retention.Entry{Ended: muster.NewTime(f.At), Bytes: muster.Size(f.Size)})
	})
	return eachBatch(ctx, list, since, act)
}

func eachBatch(ctx context.Context, list []blob.File, since cutoff, act action) error {
	for batch := range slices.Chunk(list, fileBatch) {
		if err := act.uploads(ctx, batch, since); err != nil {
			return err
		}
	}
	return nil
}

// dropGrants drops the grants of blobs that do not exist, and those of workers that do not exist.
func (r *remover) dropGrants(ctx context.Context, m *marks) error {
	exists := func(sum string) bool {
		_, err := r.Blobs.Stat(ctx, sum)
		return err == nil || muster.CodeOf(err) != muster.NotFound
	}
	for after := ""; ; {
		start := time.Now()
		page, err := r.Store.GrantedBlobs(ctx, after, pageSize)
		if err != nil {
			return err
		}
		last := len(page) < pageSize
		if len(page) > 0 {
			after = page[len(page)-1]
		}
		missing := slices.DeleteFunc(page, func(sum string) bool { return m.has(sum) || exists(sum) })
		if len(missing) > 0 {
			err := r.batch(ctx, r.waiting(), func() (time.Duration, error) { return r.Store.DropGrants(ctx, missing, exists) })
			if err != nil {
				return err
			}
		}
		if last {
			break
		}
		if err := rest(ctx, true, start); err != nil {
			return err
		}
	}
	return r.untilFew(ctx, func() (int, time.Duration, error) { return r.Store.DropWorkerGrants(ctx, pageSize) })
}
