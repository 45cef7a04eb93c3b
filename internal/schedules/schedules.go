package schedules

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cron"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/wake"
)

// Labels of the jobs of schedules.
const (
	LabelName = "muster/schedule"     // the name of the schedule
	LabelTime = "muster/scheduled-at" // for which the run was planned: RFC 3339 with milliseconds, in UTC
)

// Upcoming is how many next runs are shown.
const Upcoming = 3

// Store is what a Scheduler remembers.
type Store interface {
	store.ScheduleStore
	store.ScheduleRunStore
}

// Engine submits and cancels jobs.
type Engine interface {
	// SubmitRun submits a job for a run, and records both in one transaction. It is idempotent for by.Key.
	SubmitRun(ctx context.Context, spec *muster.Spec, by store.IdempotencyKey, run store.ScheduleRun) (muster.JobID, error)
	Cancel(ctx context.Context, job muster.JobID, spans []muster.Span) error
}

// Auditor records what is submitted and what is refused.
type Auditor interface {
	Add(audit.Record)
	Count(audit.Record)
}

// Config configures a Scheduler.
type Config struct {
	Store  Store
	Engine Engine
	Audit  Auditor
	// Admit checks a spec at the time of a run, and may modify it.
	Admit func(*muster.Spec) []muster.FieldError
	Now   func() time.Time // nil means time.Now
	Log   *slog.Logger
}

// Scheduler keeps schedules and starts their runs while Run runs. All methods are safe for concurrent use.
type Scheduler struct {
	Config
	wake chan struct{}
	mu   sync.Mutex // held while a run is decided, and while a schedule is changed
}

// New returns a Scheduler.
func New(cfg Config) *Scheduler {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Scheduler{Config: cfg, wake: wake.New()}
}

// View is a schedule with what follows from it.
type View struct {
	store.Schedule

	Upcoming []time.Time         // the next runs, in the zone of the schedule; nil while it is paused
	Runs     []store.ScheduleRun // the newest first; nil in lists
	Problem  string              // why runs are or will be refused, or ""; not in lists
}

// planOf returns the plan of a schedule.
func planOf(v *store.Schedule, now time.Time) (cron.Plan, error) {
	e, err := cron.Parse(v.Cron, v.Timezone, now)
	p := cron.Plan{Expression: e, Missed: cron.Missed(v.Missed), Overlap: cron.Overlap(v.Overlap)}
	if err == nil {
		err = p.Validate()
	}
	return p, err
}

// Put creates a schedule for the caller, or replaces one. v has its fields from Project to Spec, and Paused. Errors are Invalid, Conflict, and
// InvalidSpec for a spec that cannot be submitted more than once.
func (s *Scheduler) Put(ctx context.Context, v store.Schedule, by auth.Principal, replace bool) (View, error) {
	now := s.Now()
	plan, err := planOf(&v, now)
	if err != nil {
		return View{}, err
	}
	if v.Spec.Signature != nil {
		err := muster.Errorf(muster.InvalidSpec, "the job of a schedule cannot be signed: a signature is valid for one job, and until it expires")
		err.Fields = []muster.FieldError{{Path: "signature", Message: "not allowed in a schedule", Hint: "remove it; workers that require signatures do not run jobs of schedules"}}
		return View{}, err
	}
	v.Owner, v.OwnerName = by.KeyID, by.Name
	v.CreatedAt = muster.NewTime(now)
	v.UpdatedAt = v.CreatedAt
	if !v.Paused {
		v.Next = timeOf(plan.Next(now))
	}
	s.mu.Lock()
	v, err = s.Store.PutSchedule(ctx, v, replace)
	s.mu.Unlock()
	if err != nil {
		return View{}, err
	}
	wake.Set(s.wake)
	return s.view(ctx, &v)
}

// timeOf converts a time; the zero time is 0.
func timeOf(t time.Time) muster.Time {
	if t.IsZero() {
		return 0
	}
	return muster.NewTime(t)
}

// stdTime converts a time; 0 is the zero time.
func stdTime(t muster.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.Std()
}

// List lists the schedules of a project, or all if it is "", by project and name.
func (s *Scheduler) List(ctx context.Context, project string) ([]View, error) {
	list, err := s.Store.Schedules(ctx, project)
	views := make([]View, len(list))
	for i := range list {
		views[i] = View{Schedule: list[i], Upcoming: s.upcoming(&list[i])}
	}
	return views, err
}

// Show returns a schedule, or NotFound.
func (s *Scheduler) Show(ctx context.Context, project, name string) (View, error) {
	v, err := s.Store.Schedule(ctx, project, name)
	if err != nil {
		return View{}, err
	}
	return s.view(ctx, &v)
}

func (s *Scheduler) view(ctx context.Context, v *store.Schedule) (View, error) {
	runs, err := s.Store.ScheduleRuns(ctx, v.ID)
	if err != nil {
		return View{}, err
	}
	p, err := s.owner(ctx, v)
	view := View{Schedule: *v, Upcoming: s.upcoming(v), Runs: runs}
	switch {
	case err != nil:
		view.Problem = err.Error()
	case p.Expires != 0:
		view.Problem = "the key " + p.Name + " of the owner expires at " + p.Expires.String() + ": later runs are refused"
	}
	return view, nil
}

// upcoming returns the next runs.
func (s *Scheduler) upcoming(v *store.Schedule) (list []time.Time) {
	plan, err := planOf(v, s.Now())
	if err != nil {
		return nil
	}
	for t := stdTime(v.Next); !t.IsZero() && len(list) < Upcoming; t = plan.Next(t) {
		list = append(list, t.In(plan.Zone()))
	}
	return list
}

// SetPaused pauses a schedule or resumes it. Runs whose time passes in a pause are not missed: there are none.
func (s *Scheduler) SetPaused(ctx context.Context, project, name string, paused bool) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.Store.Schedule(ctx, project, name)
	if err != nil {
		return View{}, err
	}
	if v.Paused != paused {
		now := s.Now()
		plan, err := planOf(&v, now)
		if err != nil {
			return View{}, err
		}
		v.Paused, v.Next, v.UpdatedAt = paused, 0, muster.NewTime(now)
		if !paused {
			v.Next = timeOf(plan.Next(now))
		}
		if err := s.Store.SetScheduleNext(ctx, v.ID, v.Paused, v.Next, v.UpdatedAt); err != nil {
			return View{}, err
		}
		wake.Set(s.wake)
	}
	return s.view(ctx, &v)
}

// Delete deletes a schedule and what it remembers about its runs, not their jobs. NotFound.
func (s *Scheduler) Delete(ctx context.Context, project, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.DeleteSchedule(ctx, project, name)
}

// owner returns the key with which jobs of a schedule are submitted, if it may submit them, else a Forbidden error.
func (s *Scheduler) owner(ctx context.Context, v *store.Schedule) (auth.Principal, error) {
	key, err := s.Store.KeyByID(ctx, v.Owner)
	if muster.CodeOf(err) == muster.NotFound {
		return auth.Principal{}, muster.Errorf(muster.Forbidden, "the key %q, which created the schedule, was revoked: create the schedule again with another key, and --replace", v.OwnerName)
	}
	if err != nil {
		return auth.Principal{}, err
	}
	p := auth.Principal{KeyID: key.ID, Name: key.Name, Role: auth.Role(key.Role), Project: key.Project, Job: key.Job, Expires: key.ExpiresAt}
	if p.Expires != 0 && p.Expires.Std().Before(s.Now()) {
		return p, muster.Errorf(muster.Forbidden, "the key %q, which created the schedule, has expired: create the schedule again with another key, and --replace", key.Name)
	}
	return p, auth.Can(p, auth.SubmitJobs, auth.Object{Project: v.Project})
}
