package sched

import "github.com/muster-dev/muster"

// Config sets the scheduler's patience. Zero fields take their defaults.
type Config struct {
	Heartbeat  muster.Duration // how often a worker is expected to renew; default 10s
	Silent     muster.Duration // a worker that has not been heard for so long is unreachable; default 3×Heartbeat
	Settle     muster.Duration // how long a worker may not list an attempt that it was given; default 15s
	CrashLimit int             // how many attempts of a task may be lost by the fleet's fault; default 5
}

// State is the scheduler's memory.
type State struct{ cfg Config }

func New(cfg Config) *State { return &State{cfg: cfg} }
func Rebuild(cfg Config, now muster.Time, snap muster.Snapshot) (*State, error) {
	return New(cfg), nil
}
func (s *State) NextJob() muster.JobID                 { return 1 }
func (s *State) Apply(now muster.Time, ev Event) error { return nil }
func (s *State) Place(now muster.Time)                 {}
func (s *State) Take() Effects                         { return Effects{} }
func (s *State) Wake() muster.Time                     { return 0 }
func (s *State) Keep(w muster.WorkerID, held []muster.AttemptID) (keep, stop []muster.AttemptID) {
	return nil, held
}
func (s *State) Explain(now muster.Time, id muster.TaskID) (Explanation, error) {
	return Explanation{}, muster.Errorf(muster.NotFound, "task %s is not live", id)
}
func (s *State) Plan(now muster.Time, spec *muster.Spec) []Explanation { return nil }
func (s *State) Workers() []muster.Worker                              { return nil }
func (s *State) Check() error                                          { return nil }
func (s *State) Snapshot() muster.Snapshot                             { return muster.Snapshot{} }
func (s *State) Live(job muster.JobID) bool                            { return false }
