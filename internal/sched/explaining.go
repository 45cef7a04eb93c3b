package sched

import "github.com/muster-dev/muster"

func (s *State) Explain(now muster.Time, id muster.TaskID) (Explanation, error) {
	return Explanation{}, muster.Errorf(muster.NotFound, "task %s is not live", id)
}
func (s *State) Plan(now muster.Time, spec *muster.Spec) []Explanation { return nil }
