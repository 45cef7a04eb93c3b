package simtest

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched"
)

// newWorker makes a worker with random resources.
func (w *simulation) newWorker(i int) *worker {
	id := muster.WorkerID(fmt.Sprintf("w%d", i))
	res := muster.Resources{
		CPUs: float64(1 + w.rng.IntN(8)), Slots: 1 + w.rng.IntN(4),
		Memory: muster.Size(1+w.rng.IntN(32)) << 30, Disk: 100 << 30,
	}
	for g := range w.rng.IntN(3) {
		res.GPUs = append(res.GPUs, muster.GPU{
			UUID: fmt.Sprintf("GPU-%d-%d", i, g), Index: g, Vendor: []string{"nvidia", "amd"}[w.rng.IntN(2)],
			Name: []string{"RTX 4090", "MI300X"}[w.rng.IntN(2)], Memory: muster.Size(8+8*w.rng.IntN(3)) << 30,
		})
	}
	tags, interval := []string{"linux"}, muster.Duration(0)
	if w.rng.IntN(2) == 0 {
		tags, interval = append(tags, "laptop"), 5*heartbeat/2
	}
	kinds := []string{"noop", "process"}
	if w.rng.IntN(3) > 0 {
		kinds = append(kinds, muster.KindContainer)
	}
	var allow *muster.Allow
	if w.rng.IntN(3) == 0 {
		allow = &muster.Allow{Images: []string{"acme/*"}, MaxTaskTimeout: muster.Duration(time.Hour)}
	}
	if w.rng.IntN(3) == 0 {
		res.MaxTasks = 1 + w.rng.IntN(3)
	}
	lacks, projects := w.restrict()
	return &worker{
		id: id, runs: map[muster.AttemptID]*execution{}, reports: map[muster.AttemptID]muster.Report{},
		offer: muster.Worker{Pending: w.rng.IntN(6) == 0, ID: id, Name: string(id), Tags: tags, Kinds: kinds, Resources: res, Allow: allow, UnsupportedFeatures: lacks, Projects: projects, Heartbeat: interval},
	}
}

// restrict draws the features that a worker lacks, and the projects that it is restricted to.
func (w *simulation) restrict() (lacks, projects []string) {
	if w.rng.IntN(4) == 0 {
		lacks = [][]string{{muster.FeatureEnv}, {muster.FeatureInputs, muster.FeatureCancel}, {muster.FeatureElement, muster.FeatureEnv}}[w.rng.IntN(3)]
	}
	if w.rng.IntN(6) == 0 {
		projects = [][]string{{"red"}, {"blue", "green"}}[w.rng.IntN(2)]
	}
	return lacks, projects
}

// userEvents returns random requests of users and administrators.
func (w *simulation) userEvents() []sched.Event {
	var events []sched.Event
	if w.rng.IntN(8) == 0 && w.openJobs() < 12 {
		w.stats.submits++
		ev := sched.Submit{ID: w.st.NextJob(), Spec: w.newSpec(), Owner: "someone"}
		if n := len(w.disk.jobs); n > 0 && w.rng.IntN(2) == 0 {
			w.rerun(&ev, muster.JobID(1+w.rng.IntN(n)))
		}
		events = append(events, ev)
	}
	if n := len(w.disk.jobs); n > 0 && w.rng.IntN(40) == 0 {
		id := muster.JobID(1 + w.rng.IntN(n))
		if w.st.Live(id) {
			w.stats.cancels++
			ev := sched.Cancel{Job: id}
			if w.rng.IntN(2) == 0 {
				first := w.rng.IntN(6)
				ev.Tasks = []muster.Span{{First: first, Last: first + w.rng.IntN(5)}}
			}
			events = append(events, ev)
		}
	}
	if n := len(w.disk.jobs); n > 0 && w.rng.IntN(40) == 0 && len(events) == 0 {
		if id := muster.JobID(1 + w.rng.IntN(n)); !w.disk.removed[id] {
			w.stats.retries++
			job, groups, ended, kept := w.disk.retry(id)
			for _, t := range ended {
				w.retried[t.ID] = true
			}
			events = append(events, sched.Retry{Job: job, Groups: groups, Ended: ended, Kept: kept, Unmaterialized: true})
		}
	}
	if n := len(w.disk.jobs); n > 0 && w.rng.IntN(60) == 0 && len(events) == 0 {
		if id := muster.JobID(1 + w.rng.IntN(n)); !w.disk.removed[id] {
			j := w.disk.jobs[id]
			events = append(events, sched.JobRemoved{Job: id, Project: j.Project, Counts: j.Counts}) // a live one is refused
		}
	}
	if n := len(w.disk.jobs); n > 0 && w.rng.IntN(20) == 0 {
		events = append(events, w.newEdit(muster.JobID(1+w.rng.IntN(n))))
	}
	chosen := w.workers[w.rng.IntN(len(w.workers))]
	wk := chosen.id
	switch w.rng.IntN(200) {
	case 12:
		events = append(events, chosen.approve())
	case 13:
		events = append(events, sched.Approve{Worker: wk}) // or the server stops before it has noted the approval
	case 14:
		events = append(events, sched.Quarantine{Worker: wk, Reason: "its identity was copied"})
	case 0:
		events = append(events, sched.Pause{Worker: wk, On: true})
	case 1:
		events = append(events, sched.Pause{Worker: wk})
	case 2:
		events = append(events, sched.Drain{Worker: wk, On: true})
	case 6:
		events = append(events, sched.Pause{Worker: wk, On: true, Until: w.soon()})
	case 7, 8:
		events = append(events, sched.Drain{Worker: wk, On: true, Until: w.soon()})
	case 9, 10, 11:
		events = append(events, sched.Heal{Worker: wk})
	case 3:
		events = append(events, sched.Drain{Worker: wk})
	case 4:
		events = append(events, sched.Ready{Worker: wk, Constrained: "hot"})
	case 5:
		events = append(events, sched.Ready{Worker: wk})
	}
	return events
}

// newEdit returns a random change of a job.
func (w *simulation) newEdit(id muster.JobID) sched.Edit {
	ev := sched.Edit{Job: id}
	if w.rng.IntN(2) == 0 {
		priority := []int{0, 10, 50, 90, 100, 101}[w.rng.IntN(6)]
		ev.Priority = &priority
	}
	if w.rng.IntN(2) == 0 {
		held := w.rng.IntN(3) == 0
		ev.Held = &held
	}
	if w.st.Live(id) {
		w.stats.edits++
		if ev.Held != nil && *ev.Held {
			w.stats.holds++
		}
	}
	return ev
}

// soon returns a time within the next minute.
func (w *simulation) soon() muster.Time { return w.now + muster.Time(w.rng.IntN(60_000)) }

// unpause returns events that resume all workers and release all jobs.
func (w *simulation) unpause() []sched.Event {
	var events []sched.Event
	released := false
	for id := range muster.JobID(len(w.disk.jobs)) {
		if w.disk.jobs[id+1].Held && w.st.Live(id+1) {
			events = append(events, sched.Edit{Job: id + 1, Held: &released})
		}
	}
	for _, wk := range w.workers {
		if wk.offer.Pending {
			events = append(events, wk.approve())
		}
		if row, ok := w.disk.workers[wk.id]; ok && (row.Paused || row.Draining) {
			events = append(events, sched.Pause{Worker: wk.id}, sched.Drain{Worker: wk.id})
		}
		if wk.session != 0 {
			events = append(events, sched.Ready{Worker: wk.id})
		}
	}
	return events
}

// faultEvents injects a random fault.
func (w *simulation) faultEvents() []sched.Event {
	i := w.rng.IntN(len(w.workers))
	wk := w.workers[i]
	switch w.rng.IntN(60) {
	case 0:
		w.stats.disconnects++
		return w.disconnect(i)
	case 1:
		w.stats.workerCrashes++
		ev := w.disconnect(i)
		wk.crash()
		return ev
	case 2:
		w.stats.freezes++
		wk.frozen = true
	case 3, 4, 5, 6:
		wk.frozen, wk.dead = false, false
	case 8:
		if gpus := wk.offer.Resources.GPUs; len(gpus) > 0 && wk.awake() {
			w.stats.quarantines++
			wk.quarantine(gpus[w.rng.IntN(len(gpus))].UUID, "xid 79")
			if wk.session != 0 {
				return []sched.Event{wk.offered()}
			}
		}
	case 9, 10:
		if wk.awake() && wk.session != 0 {
			w.stats.engines++
			wk.toggleEngine()
			return []sched.Event{wk.offered()}
		}
	case 14:
		if wk.awake() && wk.session != 0 {
			wk.offer.UnsupportedFeatures, wk.offer.Projects = w.restrict()
			return []sched.Event{wk.offered()}
		}
	case 11, 12:
		if wk.broken != muster.NoReason {
			wk.broken = muster.NoReason
			break
		}
		w.stats.breakdowns++
		wk.broken = []muster.Reason{muster.DiskFull, muster.WorkerInternal, muster.FetchFailed}[w.rng.IntN(3)]
	case 13:
		if wk.awake() {
			w.stats.handbacks++
			wk.handBack(w.now, []muster.Reason{muster.WorkerShutdown, muster.WorkerLost}[w.rng.IntN(2)])
		}
	case 7:
		w.now += muster.Time(w.rng.IntN(120_000)) // nothing happens for a while
	}
	return nil
}

// newSpec makes a random job that ends in this simulation.
func (w *simulation) newSpec() *muster.Spec {
	priority := []int{10, 50, 50, 90}[w.rng.IntN(4)]
	s := &muster.Spec{Name: "job", Project: []string{"red", "blue"}[w.rng.IntN(2)], Priority: &priority}
	if w.rng.IntN(3) == 0 {
		s.OnFailure, s.MaxFailures = muster.OnFailureStop, w.rng.IntN(3)
	}
	stages := 1
	if w.rng.IntN(3) == 0 {
		stages = 2 + w.rng.IntN(3)
	}
	for i := range stages {
		t := muster.TaskSpec{Name: fmt.Sprintf("stage-%d", i), Kind: "process", Run: &muster.Command{Argv: []string{"true"}}}
		switch w.rng.IntN(9) {
		case 0:
			t.Gang = &muster.Gang{Size: 1 + w.rng.IntN(5), OnLoss: []string{"", muster.GangRestart, muster.GangEnd}[w.rng.IntN(3)]}
			t.QueueTimeout = muster.Duration(10 * time.Minute) // the workers may be too few
		case 1, 2, 3:
			t.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(w.rng.IntN(30)), Step: 1}}}
		}
		for j := range i {
			if w.rng.IntN(2) == 0 {
				t.Needs = append(t.Needs, s.Tasks[j].Name)
			}
		}
		if n := len(t.Needs); n > 0 && w.rng.IntN(3) == 0 {
			t.Inputs = []muster.Input{{From: t.Needs[n-1], Name: "out.bin"}}
		}
		w.setResources(&t)
		w.setPolicies(s, &t)
		w.setCache(&t)
		s.Tasks = append(s.Tasks, t)
	}
	return s
}

// setResources gives a stage resources and policies at random.
func (w *simulation) setResources(t *muster.TaskSpec) {
	r := &t.Resources
	switch w.rng.IntN(6) {
	case 0:
		r.CPUs = 0.5 + float64(w.rng.IntN(3))
	case 1:
		r.CPUs, r.Memory = 1, muster.Size(1+w.rng.IntN(4))<<30
		t.Timeout = muster.Duration(2 * time.Hour) // the owners of some workers allow less
	case 2:
		r.GPUs = muster.GPURequest{Count: 1, Memory: muster.Size(1+w.rng.IntN(8)) << 30, Share: w.rng.IntN(2) == 0}
		t.QueueTimeout = muster.Duration(10 * time.Minute) // there may be no such device
	case 3:
		t.Where.ExcludeTags = []string{"laptop"}
		t.QueueTimeout = muster.Duration(5 * time.Minute)
	case 4:
		r.CPUs = 100 // no worker has them
		t.QueueTimeout = muster.Duration(time.Minute)
	}
	if w.rng.IntN(4) == 0 {
		t.Image, t.Isolation = []string{"acme/train", "python"}[w.rng.IntN(2)], muster.IsolationContainer
		t.QueueTimeout = muster.Duration(10 * time.Minute) // no worker may have an engine or allow it
	}
	if w.rng.IntN(4) == 0 {
		t.Env = map[string]string{"SEED": "1"}
	}
	if t.QueueTimeout == 0 { // all workers may lack what it uses, or serve other projects
		t.QueueTimeout = muster.Duration(30 * time.Minute)
	}
	if w.rng.IntN(2) == 0 {
		t.Retries = muster.Retries{Max: 1 + w.rng.IntN(3), Backoff: muster.Duration(time.Second)}
	}
	if w.rng.IntN(2) == 0 {
		t.Disconnect.Grace = muster.Duration(time.Duration(5+w.rng.IntN(60)) * time.Second)
		if w.rng.IntN(4) == 0 {
			t.Disconnect.Then = muster.DisconnectFail
		}
	}
}
