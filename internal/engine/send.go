package engine

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/sched"
)

// send sends commands, in one frame for each worker, or more if they have very many stage
// specs. A command to a worker without a session is dropped: Welcome covers it when the
// worker reconnects.
func (e *Engine) send(cmds []sched.Command) {
	if len(cmds) == 0 {
		return
	}
	frames := map[*session]*link.ToWorker{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cmd := range cmds {
		s := e.sessions[cmd.To()]
		if s == nil || s.ended.Load() {
			continue
		}
		f := frames[s]
		if f != nil && len(f.Specs) >= link.MaxNewGroupSpecs {
			s.post(f)
			f = nil
		}
		if f == nil {
			f = &link.ToWorker{}
			frames[s] = f
		}
		switch w := cmd.(type) {
		case sched.Assign:
			s.assign(f, w)
		case sched.Stop:
			f.Cancel = append(f.Cancel, link.Cancel{Attempt: w.Attempt, Reason: w.Reason, Drop: w.Outcome == muster.AttemptLost})
		case sched.Drained:
			f.Drain = true
		case sched.HealGPUs:
			f.Heal = append(f.Heal, w.GPUs...)
		}
	}
	for s, f := range frames {
		s.post(f)
	}
}

// assign adds an assignment to a frame, and the stage's spec if the session has not sent it.
func (s *session) assign(f *link.ToWorker, w sched.Assign) {
	s.owned.add(w.Attempt)
	ref, isNew := s.refs.get(w.Attempt.Task.Job, w.Group, w.Spec)
	if isNew {
		f.Specs = append(f.Specs, link.GroupSpec{Ref: ref, UID: w.UID, Name: w.Spec.Name, Spec: *w.Spec})
	}
	a := link.Assign{Attempt: w.Attempt, Ref: ref, Element: w.Spec.Element(w.Element), Grant: w.Grant, Checkpoint: w.Checkpoint, Gang: (*link.Gang)(w.Gang)}
	for _, in := range w.Inputs {
		a.Inputs = append(a.Inputs, link.Input(in))
	}
	if s.refs.perElement[ref] {
		a.Spec = dag.Bind(w.Spec, w.Element)
	}
	f.Assign = append(f.Assign, a)
}

// groupRefs numbers the stage specs that a session has sent. It keeps the last
// link.MaxNewGroupSpecs.
type groupRefs struct {
	last       int
	byGroup    map[groupKey]int
	keys       map[int]groupKey
	perElement map[int]bool
}

type groupKey struct {
	job   muster.JobID
	group int
	spec  *muster.TaskSpec // a retried stage may have been resolved again
}

func newGroupRefs() groupRefs {
	return groupRefs{byGroup: map[groupKey]int{}, keys: map[int]groupKey{}, perElement: map[int]bool{}}
}

func (r *groupRefs) get(job muster.JobID, group int, spec *muster.TaskSpec) (ref int, isNew bool) {
	key := groupKey{job, group, spec}
	if ref, ok := r.byGroup[key]; ok {
		return ref, false
	}
	r.last++
	if old, ok := r.keys[r.last-link.MaxNewGroupSpecs]; ok {
		delete(r.byGroup, old)
		delete(r.keys, r.last-link.MaxNewGroupSpecs)
		delete(r.perElement, r.last-link.MaxNewGroupSpecs)
	}
	r.byGroup[key], r.keys[r.last] = r.last, key
	if dag.PerElement(spec) {
		r.perElement[r.last] = true
	}
	return r.last, true
}
