package schedules

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/cron"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/wake"
)

// maxMessage is the maximum size of what is remembered about why a run was refused, in bytes.
const maxMessage = 1000

// maxWait is how long a jump of the clock may remain unnoticed.
const maxWait = time.Minute

// Run starts runs until ctx ends. Errors of the store and of the engine are logged and retried.
func (s *Scheduler) Run(ctx context.Context) error {
	trouble := backoff.Backoff{Min: time.Second, Max: time.Minute}
	for ctx.Err() == nil {
		wait, err := s.step(ctx)
		switch {
		case err == nil:
			trouble.Reset()
		case ctx.Err() == nil:
			s.Log.WarnContext(ctx, "a run of a schedule is delayed", slog.Any("error", err))
			wait = trouble.Next()
		}
		if wait > 0 {
			_ = wake.Wait(ctx, s.wake, wait) // its error is that of ctx
		}
	}
	return nil
}

// step makes at most one decision. It returns how long there is nothing to do.
func (s *Scheduler) step(ctx context.Context) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	v, found, err := s.Store.FirstSchedule(ctx, muster.NewTime(now.Add(cron.MaxSetBack)))
	if err != nil || !found {
		return maxWait, err
	}
	run := store.ScheduleRun{Schedule: v.ID, At: v.Next, Due: v.Next, DecidedAt: muster.NewTime(now)}
	plan, err := planOf(&v, now)
	if err != nil { // valid when it was created: the zone does not exist any more, or the last time has passed
		return 0, s.refuse(ctx, &v, &run, auth.Principal{}, err)
	}
	if cron.Reset(stdTime(v.Last), now) {
		return 0, s.Store.SetScheduleNext(ctx, v.ID, false, timeOf(plan.Next(now)), muster.NewTime(now))
	}
	step := plan.Step(stdTime(v.Next), now)
	run.Next = timeOf(step.Next)
	switch {
	case step.Skip > 0:
		run.At, run.Outcome = timeOf(step.LastSkip), store.RunSkipped
		run.Message = "missed: the server did not run at its time"
		if step.Skip > 1 {
			run.Message = fmt.Sprintf("%d runs missed: the server did not run at their times", step.Skip)
		}
		return 0, s.Store.RecordRun(ctx, run)
	case step.Start.IsZero():
		return min(maxWait, stdTime(v.Next).Sub(now)), nil
	}
	run.At = timeOf(step.Start)
	return 0, s.start(ctx, &v, plan.Overlap, &run)
}

// start submits the job of a run, or records why it does not.
func (s *Scheduler) start(ctx context.Context, v *store.Schedule, overlap cron.Overlap, run *store.ScheduleRun) error {
	active, err := s.Store.ActiveRuns(ctx, v.ID)
	if err != nil {
		return err
	}
	owner, err := s.owner(ctx, v)
	if muster.CodeOf(err) == muster.Forbidden {
		return s.refuse(ctx, v, run, owner, err)
	}
	if err != nil {
		return err
	}
	switch overlap.Decide(len(active)) {
	case cron.Skip:
		run.Outcome, run.Message = store.RunSkipped, "job "+active[len(active)-1].String()+" has not ended"
		if overlap == cron.OverlapAllow {
			run.Message = strconv.Itoa(len(active)) + " jobs have not ended"
		}
		return s.Store.RecordRun(ctx, *run)
	case cron.Replace:
		for _, job := range active {
			if err := s.Engine.Cancel(ctx, job, nil); err != nil && muster.CodeOf(err) != muster.Conflict && muster.CodeOf(err) != muster.NotFound {
				return err
			}
		}
	case cron.Start:
	}
	key := fmt.Sprintf("schedule/%d/%d/%d", v.ID, v.UpdatedAt, run.At)
	job, err := s.submit(ctx, v, store.IdempotencyKey{Owner: owner.KeyID, Key: key, Digest: key}, run)
	if err != nil {
		return s.refuse(ctx, v, run, owner, err)
	}
	s.Log.InfoContext(ctx, "a schedule has submitted a job", slog.String("schedule", v.Name), slog.String("project", v.Project), slog.String("job", job.String()))
	s.Audit.Add(record(v, owner, audit.Allowed, "job/"+job.String(), "schedule "+v.Name))
	return nil
}

// submit submits the job of a run.
func (s *Scheduler) submit(ctx context.Context, v *store.Schedule, by store.IdempotencyKey, run *store.ScheduleRun) (muster.JobID, error) {
	spec := *v.Spec
	spec.Labels = maps.Clone(spec.Labels)
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	spec.Labels[LabelName], spec.Labels[LabelTime] = v.Name, run.At.String()
	if wrong := s.Admit(&spec); len(wrong) > 0 {
		err := muster.Errorf(muster.InvalidSpec, "the server cannot run the job of schedule %s: %s", v.Name, wrong[0])
		err.Fields = wrong
		return 0, err
	}
	return s.Engine.SubmitRun(ctx, &spec, by, *run)
}

// refuse records why the job of a run could not be submitted. It returns an error that passes, with which the run is tried again.
func (s *Scheduler) refuse(ctx context.Context, v *store.Schedule, run *store.ScheduleRun, owner auth.Principal, reason error) error {
	switch muster.CodeOf(reason) {
	case muster.Unavailable, muster.StorageFull, muster.Undetermined:
		return reason
	default:
	}
	run.Outcome, run.Message = store.RunRefused, reason.Error()
	if len(run.Message) > maxMessage {
		run.Message = strings.ToValidUTF8(run.Message[:maxMessage], "") + "…"
	}
	if err := s.Store.RecordRun(ctx, *run); err != nil {
		return err
	}
	s.Log.WarnContext(ctx, "a run of a schedule is refused", slog.String("schedule", v.Name), slog.String("project", v.Project), slog.Any("reason", reason))
	outcome := audit.Failed
	if muster.CodeOf(reason) == muster.Forbidden {
		outcome = audit.Denied
	}
	s.Audit.Count(record(v, owner, outcome, "schedule/"+v.Name, run.Message))
	return nil
}

// record is the audit record of a submission.
func record(v *store.Schedule, owner auth.Principal, outcome audit.Outcome, object, detail string) audit.Record {
	return audit.Record{
		At: muster.NewTime(time.Now()), Key: v.Owner, KeyName: v.OwnerName, Role: string(owner.Role), Operation: "submit-job", Object: object, Project: v.Project, Outcome: outcome, Detail: detail,
	}
}

// Start submits a job of a schedule now, also if the schedule is paused, and whatever its policies say. With by.Key it is idempotent for by.Owner,
// the caller, for whom package auth has permitted it. The job belongs to the owner of the schedule, with whose rights it is submitted. Errors are
// NotFound, Forbidden, InvalidSpec, and Conflict if cron.MaxActive jobs of the schedule have not ended.
func (s *Scheduler) Start(ctx context.Context, project, name string, by store.IdempotencyKey) (muster.JobID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.Store.Schedule(ctx, project, name)
	if err != nil {
		return 0, err
	}
	owner, err := s.owner(ctx, &v)
	if err != nil {
		return 0, err
	}
	active, err := s.Store.ActiveRuns(ctx, v.ID)
	if err != nil {
		return 0, err
	}
	if len(active) >= cron.MaxActive {
		return 0, muster.Errorf(muster.Conflict, "%d jobs of the schedule %s have not ended: cancel some first", len(active), name)
	}
	if by.Key != "" {
		by.Key = by.Owner + "/" + by.Key
		by.Digest = fmt.Sprintf("schedule/%d/%d", v.ID, v.CreatedAt)
	}
	by.Owner = owner.KeyID
	return s.submit(ctx, &v, by, &store.ScheduleRun{Schedule: v.ID, At: muster.NewTime(s.Now()), Manual: true})
}
