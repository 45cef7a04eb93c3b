package sched

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/inflight"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// maxMissedHeartbeats is how many heartbeats a worker may miss until it is unreachable.
const maxMissedHeartbeats = 3

// Config sets the scheduler's timeouts and limits. Zero fields take their defaults.
type Config struct {
	Heartbeat         muster.Duration // how often a worker is expected to renew; default 10s
	HeartbeatTimeout  muster.Duration // a worker that sent nothing for so long is unreachable; default 3×Heartbeat; 3×Worker.Heartbeat if it asked for one
	AssignGrace       muster.Duration // how long a worker may omit a new attempt from its heartbeats; default 15s
	StarvationTimeout muster.Duration // how long a task may be overtaken before a worker is reserved for it; default 1m
	CrashLimit        int             // how many attempts of a task may fail by the fleet's fault; default 5
}

func (c Config) withDefaults() Config {
	c.Heartbeat = c.Heartbeat.Or(muster.Duration(10 * time.Second))
	c.HeartbeatTimeout = c.HeartbeatTimeout.Or(maxMissedHeartbeats * c.Heartbeat)
	c.AssignGrace = c.AssignGrace.Or(muster.Duration(15 * time.Second))
	c.StarvationTimeout = c.StarvationTimeout.Or(muster.Duration(time.Minute))
	if c.CrashLimit <= 0 {
		c.CrashLimit = 5
	}
	return c
}

// State is the scheduler's state: all jobs and tasks that are not final, and all
// workers. It is not safe for use by several goroutines.
type State struct {
	cfg          Config
	nextJob      muster.JobID
	jobs         map[muster.JobID]*job
	projects     map[string]*queue.Project
	projectStats map[string]*projectStats // of all projects that have jobs
	removedTotal Total                    // of projects whose jobs were all removed
	failing      map[muster.JobID]*job
	workers      []*worker            // by id
	capacity     queue.ResourceVector // what all workers offer together, except removed ones
	limits       placement.Limits     // of all workers, including those that left
	queue        *queue.Queue
	timers       queue.Timers
	inflight     inflight.Table[*task] // that use the cache
	lookups      []*task               // whose results are to be looked up; some may have ended since

	dirtyProgress   []*task     // with progress in memory only; some may have been written since
	progressFlushAt muster.Time // when to write it; 0 if there is none

	touchedJobs   []*job   // whose state must be recomputed
	failedJobs    []*job   // that may have to be stopped
	touchedGroups []*group // whose dependents must be checked

	out pending
}

// New returns an empty State.
func New(cfg Config) *State {
	cfg = cfg.withDefaults()
	return &State{
		cfg:          cfg,
		nextJob:      1,
		jobs:         map[muster.JobID]*job{},
		projects:     map[string]*queue.Project{},
		projectStats: map[string]*projectStats{},
		failing:      map[muster.JobID]*job{},
		queue:        queue.New(cfg.StarvationTimeout),
	}
}

// NextJob returns the number that the next accepted job gets.
func (s *State) NextJob() muster.JobID { return s.nextJob }

// Live reports whether the job is in memory: it is known and not final.
func (s *State) Live(id muster.JobID) bool { return s.jobs[id] != nil }

// Apply applies one event. An error means that the event was refused and changed
// nothing, with one exception: the report of a late Finished, which is a Conflict,
// is kept in Rows.LateReports. Times must not go backwards between calls.
func (s *State) Apply(now muster.Time, ev Event) error {
	err := s.apply(now, ev)
	s.propagate(now)
	return err
}

func (s *State) apply(now muster.Time, ev Event) error {
	switch ev := ev.(type) {
	case Submit:
		return s.submit(now, ev)
	case Cancel:
		return s.cancel(now, ev)
	case Edit:
		return s.edit(now, ev)
	case Retry:
		return s.retry(now, ev)
	case JobRemoved:
		return s.jobRemoved(ev)
	case Joined:
		return s.join(now, ev)
	case Ready:
		return s.ready(now, ev)
	case Offered:
		return s.updateOffer(now, ev)
	case Disconnected:
		return s.disconnected(now, ev)
	case ShutDown:
		return s.shutDown(now, ev)
	case Renewed:
		return s.renew(now, ev)
	case Pause:
		return s.pause(now, ev)
	case Drain:
		return s.drain(now, ev)
	case Approve:
		return s.approve(now, ev)
	case Quarantine:
		return s.quarantine(now, ev)
	case Heal:
		return s.heal(ev)
	case Remove:
		return s.remove(now, ev)
	case Accepted:
		return s.accept(now, ev)
	case Rejected:
		return s.reject(now, ev)
	case Started:
		return s.start(now, ev)
	case Progressed:
		return s.progress(now, ev)
	case CheckpointSaved:
		return s.saved(now, ev)
	case Finished:
		return s.finish(now, ev)
	case CacheAnswer:
		return s.answer(now, ev)
	case Tick:
		s.tick(now)
		return nil
	default:
		return muster.Errorf(muster.Internal, "unknown event %T", ev)
	}
}
