package sweeper

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/retention"
)

// Remove removes an ended job for all readers. Its files follow in the background.
func (s *Sweeper) Remove(ctx context.Context, job muster.JobID) error {
	removed, _, err := s.Engine.RemoveJobs(ctx, []muster.JobID{job})
	if err != nil {
		return err
	}
	if len(removed) == 1 {
		s.Observe(Deleted{Jobs: 1})
		s.Wake()
		return nil
	}
	list, err := s.Store.ExistingJobs(ctx, []muster.JobID{job})
	switch {
	case err != nil:
		return err
	case len(list) == 0:
		return muster.Errorf(muster.NotFound, "there is no job %s", job)
	case !list[0].State.Final():
		return muster.Errorf(muster.Conflict, "job %s is %s: cancel it first, or use muster rm --force", job, list[0].State)
	case list[0].KeptAt != 0:
		return muster.Errorf(muster.Conflict, "job %s is kept: muster unkeep %s allows its removal", job, job)
	default:
		return muster.Errorf(muster.Conflict, "job %s changed meanwhile: try again", job)
	}
}

// Keep exempts a job from retention and prune, or ends that.
func (s *Sweeper) Keep(ctx context.Context, job muster.JobID, keep bool) error {
	return s.Engine.KeepJob(ctx, job, keep)
}

// SetPolicy replaces the policy of a project; nil deletes it. It is an Invalid error if a limit cannot be read.
func (s *Sweeper) SetPolicy(ctx context.Context, project string, policy *wire.RetentionPolicy) error {
	var text json.RawMessage
	if policy != nil {
		p, err := parsePolicy(*policy)
		if err != nil {
			return err
		}
		if p == (retention.Policy{}) {
			return muster.Errorf(muster.Invalid, "the policy has no limits: set jobs, logs, artifacts or late_reports")
		}
		if text, err = json.Marshal(p); err != nil {
			return err
		}
	}
	return s.Store.SetProjectPolicy(ctx, project, text)
}

// policies are the policies of all projects at one time.
type policies struct {
	server   retention.Policy
	projects map[string]retention.Policy
	override retention.Policy // of a prune
	noAge    bool             // deletions by age wait
	startsAt muster.Time      // when the built-in defaults begin to apply; 0 if they do
}

// loadPolicies reads the policies that are in force.
func (s *Sweeper) loadPolicies(ctx context.Context, override retention.Policy) (policies, error) {
	start, _, err := s.Store.RetentionStart(ctx)
	if err != nil {
		return policies{}, err
	}
	stored, err := s.Store.ProjectPolicies(ctx)
	if err != nil {
		return policies{}, err
	}
	p := policies{server: s.Options.Over(retention.DefaultPolicy()), projects: map[string]retention.Policy{}, override: override}
	if s.Engine.Now() < start {
		p.startsAt = start
		p.server = s.Options.Over(retention.UnlimitedPolicy())
	}
	for project, text := range stored {
		var own retention.Policy
		if err := json.Unmarshal(text, &own); err != nil {
			s.Log.Error("cannot read the retention policy of a project: keeping everything; set it again", slog.String("project", project), slog.Any("error", err))
			own = retention.UnlimitedPolicy()
		}
		p.projects[project] = own
	}
	p.noAge = s.delayedUntil() > 0
	return p, nil
}

// of returns the effective policy of a project.
func (p *policies) of(project string) retention.Policy {
	return p.override.Over(p.projects[project].Over(p.server))
}

// limit returns one limit of a policy, without its age if deletions by age wait. The limits of a prune do not wait.
func (p *policies) limit(l, override *retention.Limit) retention.Limit {
	limit := *l
	if p.noAge && override == nil {
		limit.Age = 0
	}
	return limit
}

func policyText(p retention.Policy) wire.RetentionPolicy {
	text := func(l *retention.Limit) string {
		if l == nil {
			return ""
		}
		return l.String()
	}
	return wire.RetentionPolicy{Jobs: text(p.Jobs), Logs: text(p.Logs), Artifacts: text(p.Artifacts), LateReports: text(p.LateReports)}
}

// parsePolicy reads a policy; an absent limit is the default.
func parsePolicy(w wire.RetentionPolicy) (retention.Policy, error) {
	var p retention.Policy
	for _, f := range []struct {
		name string
		text string
		to   **retention.Limit
	}{{"jobs", w.Jobs, &p.Jobs}, {"logs", w.Logs, &p.Logs}, {"artifacts", w.Artifacts, &p.Artifacts}, {"late_reports", w.LateReports, &p.LateReports}} {
		if f.text == "" {
			continue
		}
		l, err := retention.ParseLimit(f.text)
		if err != nil {
			return p, muster.Errorf(muster.Invalid, "%s: %w", f.name, err)
		}
		*f.to = &l
	}
	return p, nil
}
