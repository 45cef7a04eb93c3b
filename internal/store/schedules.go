package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// The limits of schedules.
const (
	MaxSchedules        = 5000 // of the server
	MaxProjectSchedules = 500
	MaxScheduleRuns     = 100 // that a schedule remembers, apart from older ones with a job that has not ended
)

// ScheduleID is the number of a schedule. Numbers of deleted schedules may be used again.
type ScheduleID int64

// Schedule is when jobs are submitted by themselves. Package cron has the meaning of its texts.
type Schedule struct {
	ID       ScheduleID
	Project  string
	Name     string // unique in the project
	Cron     string
	Timezone string // "" means UTC
	Missed   string
	Overlap  string
	Spec     *muster.Spec // nil in lists

	Owner     string // id of the key whose rights the jobs have
	OwnerName string // of that key, when it created the schedule
	CreatedAt muster.Time
	UpdatedAt muster.Time
	Paused    bool
	Next      muster.Time // the first run that is not decided; 0 if the schedule is paused, or has no further run
	Last      muster.Time // the latest run that was decided; 0 for none
}

// Outcomes of runs.
const (
	RunStarted = "started" // Job was submitted
	RunSkipped = "skipped" // it was missed, or earlier jobs had not ended
	RunRefused = "refused" // the job could not be submitted
)

// ScheduleRun is a decision about a run, or about several that were missed.
type ScheduleRun struct {
	Schedule  ScheduleID
	N         int         // from 1; the store counts
	At        muster.Time // for which the run was planned; of several, the last
	DecidedAt muster.Time
	Outcome   string
	Manual    bool         // a user started it
	Job       muster.JobID // 0 if none was started
	Message   string       // why

	Due, Next muster.Time // Schedule.Next before and after the decision; not stored, and without effect on a manual run
}

// ScheduleStore stores schedules. Due and Next of runs are changed by ScheduleRunStore and by Commit.
type ScheduleStore interface {
	// Schedules lists those of a project, or all if it is "", by project and name, without their specs.
	Schedules(ctx context.Context, project string) ([]Schedule, error)
	Schedule(ctx context.Context, project, name string) (Schedule, error) // NotFound
	// PutSchedule inserts a schedule, or replaces all but ID and CreatedAt of the one with its project and name, whose runs it keeps. Without replace
	// that is a Conflict, as are too many schedules. It returns what is stored.
	PutSchedule(ctx context.Context, s Schedule, replace bool) (Schedule, error)
	// SetScheduleNext sets Paused, Next and UpdatedAt, and Last to 0.
	SetScheduleNext(ctx context.Context, id ScheduleID, paused bool, next, updatedAt muster.Time) error
	DeleteSchedule(ctx context.Context, project, name string) error // and its runs, not its jobs; NotFound
}

// ScheduleRunStore is what decides about runs, and remembers them.
type ScheduleRunStore interface {
	// FirstSchedule returns a schedule the Last of which is after lastAfter, or else the one with the least Next, with its spec; false if there is none.
	FirstSchedule(ctx context.Context, lastAfter muster.Time) (Schedule, bool, error)
	// RecordRun adds a run that starts no job; Commit adds the others. The schedule has then Next of the run as its Next, if that was Due. A run of a
	// schedule that does not exist is not added.
	RecordRun(ctx context.Context, r ScheduleRun) error
	ScheduleRuns(ctx context.Context, id ScheduleID) ([]ScheduleRun, error) // the newest first
	// ActiveRuns lists the jobs of a schedule that have not ended, the oldest run first.
	ActiveRuns(ctx context.Context, id ScheduleID) ([]muster.JobID, error)
	KeyByID(ctx context.Context, id string) (Key, error) // NotFound
}
