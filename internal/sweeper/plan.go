package sweeper

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
)

const (
	maxPruning  = 16   // prunes that wait
	maxExamples = 100  // jobs and workers that a plan names
	maxWaiting  = 1000 // removed jobs that Status counts
)

// plan returns what a prune would delete.
func (s *Sweeper) plan(ctx context.Context, q PruneQuery) (wire.Prune, error) {
	select {
	case s.planner <- struct{}{}:
		defer func() { <-s.planner }()
	case <-ctx.Done():
		return wire.Prune{}, muster.Errorf(muster.Unavailable, "another prune is being planned: try again: %w", context.Cause(ctx))
	}
	plan := &planner{}
	if err := s.decide(ctx, q, plan); err != nil {
		return wire.Prune{}, err
	}
	err := s.sweep(ctx, q, plan)
	return plan.Prune, err
}

// Prune returns what exceeds the policies, and deletes it in the background, as far as it still does then, unless it is a dry run. A
// stop of the server ends it.
func (s *Sweeper) Prune(ctx context.Context, req wire.PruneRequest) (wire.Prune, error) {
	policy, err := parsePolicy(req.Keep)
	if err != nil {
		return wire.Prune{}, err
	}
	q := PruneQuery{Project: req.Project, Policy: policy}
	plan, err := s.plan(ctx, q)
	if err != nil || req.DryRun {
		return plan, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pruning) >= maxPruning {
		return plan, muster.Errorf(muster.Conflict, "%d prunes wait already: try again when they have ended", len(s.pruning))
	}
	s.pruning = append(s.pruning, q)
	s.Wake()
	return plan, nil
}

// Progress returns how many removed jobs wait for the deletion of their logs and rows, counted up to 1,000, and when the last pass was: 0 if there
// was none, or while deletions by age wait.
func (s *Sweeper) Progress(ctx context.Context) (waiting int, lastPass muster.Time, err error) {
	_, last, err := s.Store.RetentionStart(ctx)
	if err != nil {
		return 0, 0, err
	}
	removed, _, err := s.Store.RemovedJobs(ctx, 0, maxWaiting)
	return len(removed), max(last, 0), err
}

// Status returns the policies and the state of deletion, of one project if it is not "".
func (s *Sweeper) Status(ctx context.Context, project string) (wire.Retention, error) {
	p, err := s.loadPolicies(ctx, retention.Policy{})
	if err != nil {
		return wire.Retention{}, err
	}
	waiting, last, err := s.Progress(ctx)
	if err != nil {
		return wire.Retention{}, err
	}
	status := wire.Retention{
		Defaults: policyText(s.Options.Over(retention.DefaultPolicy())), StartsAt: p.startsAt, Uploads: s.Server.Uploads.String(), Workers: s.Server.Workers.String(),
		Projects: []wire.ProjectRetention{}, WaitingJobs: waiting, LastPassAt: last, DelayedUntil: s.delayedUntil(),
	}
	for name, own := range p.projects {
		if project == "" || project == name {
			status.Projects = append(status.Projects, wire.ProjectRetention{Project: name, RetentionPolicy: policyText(own)})
		}
	}
	slices.SortFunc(status.Projects, func(a, b wire.ProjectRetention) int { return cmp.Compare(a.Project, b.Project) })
	return status, nil
}

// planner is the action that counts.
type planner struct{ wire.Prune }

func (p *planner) paced() bool { return false }

func (p *planner) jobs(_ context.Context, list []store.EndedJob) error {
	for i := range list {
		count(&p.Jobs, list[i].LogBytes, list[i].EndedAt)
		p.Jobs.Tasks += list[i].Tasks
		if len(p.Examples) < maxExamples {
			p.Examples = append(p.Examples, list[i].ID)
		}
	}
	return nil
}

func (p *planner) logs(_ context.Context, list []store.EndedJob) error {
	for i := range list {
		count(&p.Logs, list[i].LogBytes, list[i].EndedAt)
	}
	return nil
}

func (p *planner) artifacts(_ context.Context, list []jobFiles) error {
	for i := range list {
		count(&p.Artifacts, list[i].bytes, list[i].ended)
	}
	return nil
}

func (p *planner) uploads(_ context.Context, list []blob.File, _ cutoff) error {
	for i := range list {
		count(&p.Uploads, muster.Size(list[i].Size), muster.NewTime(list[i].At))
	}
	return nil
}

func (p *planner) lateReports(_ context.Context, list []store.LateEntry) error {
	for i := range list {
		count(&p.LateReports, 0, list[i].At)
	}
	return nil
}

func (p *planner) workers(_ context.Context, list []muster.Worker) error {
	for i := range list {
		count(&p.Workers, 0, lastContact(list[i]))
		if len(p.Workers.Names) < maxExamples {
			p.Workers.Names = append(p.Workers.Names, list[i].Name)
		}
	}
	return nil
}

func count(c *wire.PruneCount, bytes muster.Size, at muster.Time) {
	c.Number++
	c.Bytes += bytes
	if c.OldestAt == 0 || at < c.OldestAt {
		c.OldestAt = at
	}
}
