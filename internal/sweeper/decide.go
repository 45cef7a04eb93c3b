package sweeper

import (
	"context"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
)

// PruneQuery selects what a prune deletes.
type PruneQuery struct {
	Project string           // "" means all, and the data of no project
	Policy  retention.Policy // limits that replace those of the projects, for this prune
}

// action is what happens with what the policies do not keep: a remover deletes it, a planner counts it.
type action interface {
	jobs(ctx context.Context, list []store.EndedJob) error
	logs(ctx context.Context, list []store.EndedJob) error
	lateReports(ctx context.Context, list []store.LateEntry) error
	workers(ctx context.Context, list []muster.Worker) error
	artifacts(ctx context.Context, list []jobFiles) error
	// uploads is called with blobs that nothing refers to. They go unless they were touched since a time.
	uploads(ctx context.Context, list []blob.File, since cutoff) error
	// paced reports whether reading may take only a share of the time.
	paced() bool
}

// decide finds jobs, logs, late reports and workers that the policies do not keep.
func (s *Sweeper) decide(ctx context.Context, q PruneQuery, act action) error {
	p, err := s.loadPolicies(ctx, q.Policy)
	if err != nil {
		return err
	}
	projects := []string{q.Project}
	if q.Project == "" {
		if projects, err = s.Store.RetentionProjects(ctx); err != nil {
			return err
		}
	}
	now := s.Engine.Now()
	for _, project := range projects {
		policy := p.of(project)
		if err := s.endedJobs(ctx, now, project, p.limit(policy.Jobs, q.Policy.Jobs), false, act.jobs); err != nil {
			return err
		}
		if err := s.endedJobs(ctx, now, project, p.limit(policy.Logs, q.Policy.Logs), true, act.logs); err != nil {
			return err
		}
	}
	if err := s.lateReports(ctx, now, q, &p, projects, act); err != nil || q.Project != "" {
		return err
	}
	return s.departed(ctx, now, p.limit(&s.Server.Workers, nil), act)
}

// endedJobs calls act with the ended jobs of a project, or those that have logs, that a limit does not keep, in batches.
func (s *Sweeper) endedJobs(ctx context.Context, now muster.Time, project string, l retention.Limit, logs bool, act func(context.Context, []store.EndedJob) error) error {
	if l.Unlimited() {
		return nil
	}
	var total retention.Total
	if l.Number > 0 || l.Bytes > 0 {
		t, err := s.Store.EndedTotals(ctx, project)
		if err != nil {
			return err
		}
		total = retention.Total{Number: t.Jobs, Bytes: t.LogBytes}
		if logs {
			total.Number = t.Logs
		}
	}
	budget := retention.NewBudget(l, now, total)
	q := store.EndedQuery{Project: project, Logs: logs, Limit: pageSize}
	for !budget.Done() {
		page, err := s.Store.EndedJobs(ctx, q)
		if err != nil {
			return err
		}
		remove := slices.DeleteFunc(slices.Clone(page), func(j store.EndedJob) bool {
			return !budget.Remove(retention.Entry{Ended: j.EndedAt, Bytes: j.LogBytes, Kept: j.Kept})
		})
		for batch := range slices.Chunk(remove, jobBatch) {
			if err := act(ctx, batch); err != nil {
				return err
			}
		}
		if len(page) < q.Limit {
			return nil
		}
		q.After = page[len(page)-1]
	}
	return nil
}

// lateReports finds late reports that the policies of their projects do not keep.
func (s *Sweeper) lateReports(ctx context.Context, now muster.Time, q PruneQuery, p *policies, projects []string, act action) error {
	budgets := make(map[string]*retention.Budget, len(projects))
	open := 0 // budgets that are not done
	for _, project := range projects {
		l := p.limit(p.of(project).LateReports, q.Policy.LateReports)
		var total retention.Total
		if l.Number > 0 {
			t, err := s.Store.EndedTotals(ctx, project)
			if err != nil {
				return err
			}
			total.Number = t.LateReports
		}
		b := retention.NewBudget(l, now, total)
		budgets[project] = &b
		if !b.Done() {
			open++
		}
	}
	var after store.LateEntry
	for open > 0 {
		page, err := s.Store.OldestLateReports(ctx, after, pageSize)
		if err != nil {
			return err
		}
		var remove []store.LateEntry
		for _, e := range page {
			b := budgets[e.Project]
			if b == nil || b.Done() {
				continue
			}
			if b.Remove(retention.Entry{Ended: e.At}) {
				remove = append(remove, e)
			} else {
				open--
			}
		}
		if len(remove) > 0 {
			if err := act.lateReports(ctx, remove); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
		after = page[len(page)-1]
	}
	return nil
}

// departed finds workers that left, by the time when they were last seen.
func (s *Sweeper) departed(ctx context.Context, now muster.Time, l retention.Limit, act action) error {
	if l.Unlimited() {
		return nil
	}
	list, err := s.Store.Workers(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(w muster.Worker) bool { return w.State != muster.WorkerGone })
	slices.SortFunc(list, func(a, b muster.Worker) int { return int(lastContact(a) - lastContact(b)) })
	budget := retention.NewBudget(l, now, retention.Total{Number: int64(len(list))})
	list = slices.DeleteFunc(list, func(w muster.Worker) bool { return !budget.Remove(retention.Entry{Ended: lastContact(w)}) })
	for batch := range slices.Chunk(list, jobBatch) {
		if err := act.workers(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func lastContact(w muster.Worker) muster.Time { return max(w.LastSeenAt, w.JoinedAt) }
