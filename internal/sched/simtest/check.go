package simtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/policy"
	"github.com/muster-dev/muster/internal/sched"
)

// checkRows checks a commit: a success is permanent, another end changes only by a
// user's retry, attempt numbers only grow, and an attempt's history is written once.
func (w *simulation) checkRows(rows muster.Rows) error {
	for _, t := range rows.Tasks {
		old, known := w.disk.tasks[t.ID]
		switch {
		case t.State.HoldsResources() && (t.Worker == "" || t.Grant == nil && (t.State != muster.Running || w.gangOf(t.ID) == nil)):
			return fmt.Errorf("task %s is %s without a worker and a grant", t.ID, t.State)
		case t.State.Final() && t.FinishedAt == 0:
			return fmt.Errorf("task %s is %s without a time", t.ID, t.State)
		case !known:
			if t.Attempt > 1 {
				return fmt.Errorf("task %s begins with attempt %d", t.ID, t.Attempt)
			}
			continue
		case t.State == muster.Succeeded && old.State != muster.Succeeded && w.gangOf(t.ID) == nil && !t.Cached && string(t.Result) != resultOf(t.Attempt):
			return fmt.Errorf("task %s succeeded at attempt %d with the result %s of another attempt", t.ID, t.Attempt, t.Result)
		case t.Attempt < old.Attempt || t.Attempt > old.Attempt+1:
			return fmt.Errorf("task %s goes from attempt %d to %d", t.ID, old.Attempt, t.Attempt)
		case t.Checkpoint != old.Checkpoint && savedBy(t.Checkpoint) != old.Attempt && savedBy(t.Checkpoint) != t.Attempt:
			return fmt.Errorf("task %s has a checkpoint of attempt %d, and is at attempt %d", t.ID, savedBy(t.Checkpoint), t.Attempt)
		case t.State == muster.Assigned && old.State != muster.Assigned && t.Attempt == old.Attempt:
			return fmt.Errorf("task %s is assigned again as attempt %d", t.ID, t.Attempt)
		case old.State == muster.Succeeded && t.State != muster.Succeeded:
			return fmt.Errorf("task %s succeeded before and is %s now", t.ID, t.State)
		case old.State.Final() && !t.State.Final() && !w.retried[t.ID]:
			return fmt.Errorf("task %s ended as %s before and is %s now without a retry", t.ID, old.State, t.State)
		}
	}
	for _, a := range rows.Attempts {
		if old, known := w.disk.attempts[a.ID]; known {
			return fmt.Errorf("attempt %s ended as %s and again as %s", a.ID, old.Outcome, a.Outcome)
		}
		if a.Outcome == muster.AttemptOpen {
			return fmt.Errorf("attempt %s has a history row but no outcome", a.ID)
		}
	}
	return nil
}

// checkSend checks a command: it matches the committed rows, and everything that an
// assigned task needs has succeeded.
func (w *simulation) checkSend(cmd sched.Command) error {
	var m sched.Assign
	switch cmd := cmd.(type) {
	case sched.Assign:
		m = cmd
	case sched.Stop:
		if cmd.Reason == muster.Preempted && cmd.Outcome == muster.AttemptCancelled {
			w.stats.preemptions++
		}
		return nil
	case sched.HealGPUs:
		w.stats.heals++
		return nil
	case sched.Drained:
		return nil
	}
	w.stats.assigns++
	if err := w.checkGiven(m); err != nil {
		return err
	}
	if err := w.checkMiss(&m); err != nil {
		return err
	}
	t := w.disk.tasks[m.Attempt.Task]
	if t.State != muster.Assigned || t.Attempt != m.Attempt.N || t.Worker != m.Worker {
		return fmt.Errorf("attempt %s is offered to %s, but on disk the task is %s, attempt %d, on %q", m.Attempt, m.Worker, t.State, t.Attempt, t.Worker)
	}
	if err := w.checkSeat(m); err != nil {
		return err
	}
	groups := w.disk.groupsOf(m.Attempt.Task.Job)
	for _, need := range m.Spec.Needs {
		if m.Spec.RunsAfterFailure() {
			break // a retry of what it needs does not stop it; see checkDecision
		}
		i := slices.IndexFunc(groups, func(g muster.Group) bool { return g.Name == need })
		if g := groups[i]; g.Counts[muster.Succeeded] != int64(g.Size) {
			return fmt.Errorf("attempt %s starts before %s is done", m.Attempt, need)
		}
	}
	for _, in := range m.Spec.Inputs {
		if len(m.Inputs) == 0 {
			return fmt.Errorf("attempt %s is offered without its input %s", m.Attempt, in.Name)
		}
	}
	return nil
}

// checkGiven checks that a task is assigned to a worker that takes it, on devices that
// are not quarantined, and with its last checkpoint.
func (w *simulation) checkGiven(m sched.Assign) error {
	t, row := w.disk.tasks[m.Attempt.Task], w.disk.workers[m.Worker]
	if w.disk.jobs[m.Attempt.Task.Job].Held {
		return fmt.Errorf("attempt %s is offered to %s, though its job is held", m.Attempt, m.Worker)
	}
	if row.Pending {
		return fmt.Errorf("attempt %s is offered to %s, which waits for approval", m.Attempt, m.Worker)
	}
	if row.Paused || row.Draining {
		return fmt.Errorf("attempt %s is offered to %s, which takes nothing", m.Attempt, m.Worker)
	}
	for _, g := range row.Resources.GPUs {
		if g.Quarantined != "" && slices.Contains(m.Grant.GPUs, g.UUID) {
			return fmt.Errorf("attempt %s is given the quarantined device %s", m.Attempt, g.UUID)
		}
	}
	if m.Spec.Isolation == muster.IsolationContainer {
		w.stats.contained++
		if !slices.Contains(row.Kinds, muster.KindContainer) {
			return fmt.Errorf("attempt %s needs an engine, and is offered to %s, which has none", m.Attempt, m.Worker)
		}
		for _, a := range w.disk.attempts {
			if a.ID.Task == m.Attempt.Task && a.ID.N == m.Attempt.N-1 && (a.Reason == muster.ImagePull || a.Reason == muster.EngineFailed) {
				w.stats.retriedElsewhere++
				if since := w.now.Sub(a.FinishedAt); a.Worker == m.Worker && since < 10*muster.Duration(time.Second) && a.FinishedAt > w.serverStart {
					return fmt.Errorf("attempt %s is offered to %s again, %s after it failed there", m.Attempt, m.Worker, since)
				}
			}
		}
	}
	for _, feature := range muster.Features(m.Spec) {
		if slices.Contains(row.UnsupportedFeatures, feature) {
			return fmt.Errorf("attempt %s uses %s, and is offered to %s, which lacks it", m.Attempt, feature, m.Worker)
		}
	}
	if project := w.disk.jobs[m.Attempt.Task.Job].Project; len(row.Projects) > 0 && !slices.Contains(row.Projects, project) {
		return fmt.Errorf("attempt %s of project %s is offered to %s, which takes those of %q only", m.Attempt, project, m.Worker, row.Projects)
	}
	if why := policy.Check(row.Allow, m.Spec); why != "" {
		return fmt.Errorf("attempt %s is offered to %s, though %s", m.Attempt, m.Worker, why)
	}
	if m.Checkpoint != t.Checkpoint {
		return fmt.Errorf("attempt %s continues from %q, but %q was saved last", m.Attempt, m.Checkpoint, t.Checkpoint)
	}
	if m.Checkpoint != "" {
		w.stats.continued++
	}
	return nil
}

// gangOf returns the gang that a task is a member of, or nil.
func (w *simulation) gangOf(id muster.TaskID) *muster.Gang {
	g, _ := w.disk.groupOf(id)
	return w.disk.jobs[id.Job].Spec.Tasks[g.Index].Gang
}

// checkSeat checks that the members of a gang are assigned together, with the same
// attempt number and the right ranks.
func (w *simulation) checkSeat(m sched.Assign) error {
	spec := w.gangOf(m.Attempt.Task)
	if spec == nil || m.Gang == nil {
		if spec != nil || m.Gang != nil {
			return fmt.Errorf("attempt %s is in a gang: %v, but assigned with %v", m.Attempt, spec, m.Gang)
		}
		return nil
	}
	w.stats.gangMembers++
	g, _ := w.disk.groupOf(m.Attempt.Task)
	if rank := m.Attempt.Task.Num - g.First; m.Gang.Rank != rank || m.Gang.Size != spec.Size || m.Gang.Master == "" || m.Gang.Port == 0 {
		return fmt.Errorf("attempt %s has rank %d but is assigned with %+v", m.Attempt, rank, m.Gang)
	}
	for n := range g.Size {
		t := w.disk.tasks[muster.TaskID{Job: g.Job, Num: g.First + n}]
		if t.State != muster.Assigned || t.Attempt != m.Attempt.N {
			return fmt.Errorf("attempt %s is offered, and member %d is %s at attempt %d", m.Attempt, n, t.State, t.Attempt)
		}
	}
	return nil
}

// checkGangs checks that the members of a gang succeed together, and that none waits
// when another one has ended.
func (w *simulation) checkGangs() error {
	for _, g := range w.disk.groups {
		if w.disk.jobs[g.Job].Spec.Tasks[g.Index].Gang == nil {
			continue
		}
		c := g.Counts
		if done := c[muster.Succeeded]; done > 0 && done < int64(g.Size) {
			return fmt.Errorf("gang %d of job %d has %d of %d successes", g.Index, g.Job, done, g.Size)
		}
		if c[muster.Waiting]+c[muster.Queued] > 0 && c.Finished() > 0 {
			return fmt.Errorf("gang %d of job %d is partly ended: %v", g.Index, g.Job, c)
		}
	}
	return nil
}

// checkLeases checks that nothing stays assigned to a worker that has been
// disconnected for longer than the lease; a restart of the server restarts all leases.
func (w *simulation) checkLeases() error {
	for _, t := range w.disk.tasks {
		if !t.State.HoldsResources() || t.Grant == nil {
			continue // not assigned, or a member of a gang that is done and waits for the others
		}
		i := w.index(t.Worker)
		if i < 0 || w.workers[i].session != 0 {
			continue
		}
		g, _ := w.disk.groupOf(t.ID)
		lease := w.disk.jobs[t.Job].Spec.Tasks[g.Index].Disconnect.Grace.Or(muster.DefaultDisconnectGrace)
		if offline := w.now.Sub(max(w.workers[i].disconnectedAt, w.serverStart)); offline > lease {
			return fmt.Errorf("attempt %s#%d is still %s on %s, which has been disconnected for %s, longer than the lease of %s", t.ID, t.Attempt, t.State, t.Worker, offline, lease)
		}
	}
	return nil
}

// resultOf returns the result that an attempt reports.
func resultOf(attempt int) string {
	list := make([]int, listLength(attempt))
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"attempt":%d,"list":%s}`, attempt, text)
}

// listLength returns how many elements the list has in the result of an attempt.
func listLength(attempt int) int { return (attempt + 2) % 4 }

// treeOf returns the hash of a tree that an attempt saved, which contains its number.
func treeOf(attempt, n int) string { return fmt.Sprintf("%032x%032x", attempt, n) }

// savedBy returns the attempt that saved a tree.
func savedBy(tree string) int {
	var n int
	if _, err := fmt.Sscanf(tree[:32], "%x", &n); err != nil {
		return 0
	}
	return n
}

// checkAll checks everything: the counts of every job, the usage of every worker, and
// that a rebuild from the committed rows gives the live state.
func (w *simulation) checkAll() error {
	for _, check := range []func() error{w.checkCounts, w.disk.checkTotals, w.checkWorkers, w.checkGangs, w.checkLeases} {
		if err := check(); err != nil {
			return err
		}
	}
	rebuilt, err := sched.Rebuild(w.cfg, w.now, w.disk.load())
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	if err := rebuilt.Check(); err != nil {
		return fmt.Errorf("the rebuilt state is inconsistent: %w", err)
	}
	if d := diff(w.st.Snapshot(), rebuilt.Snapshot()); d != "" {
		return fmt.Errorf("the live state (-) is not the committed one (+):\n%s", d)
	}
	return nil
}

// checkTotals checks that the stored totals are those of the jobs that were not removed.
func (d *disk) checkTotals() error {
	want := map[string]muster.Counts{}
	for id, j := range d.jobs {
		if !d.removed[id] {
			want[j.Project] = want[j.Project].Add(j.Counts)
		}
	}
	if !maps.Equal(want, d.totals) {
		return fmt.Errorf("the totals of projects are %v, those of their jobs %v", d.totals, want)
	}
	return nil
}

func (d *disk) groupsOf(job muster.JobID) []muster.Group {
	var groups []muster.Group
	for i := 0; ; i++ {
		g, ok := d.groups[groupKey{job, i}]
		if !ok {
			return groups
		}
		groups = append(groups, g)
	}
}

func (w *simulation) checkCounts() error {
	for _, j := range w.disk.jobs {
		var sum muster.Counts
		for _, g := range w.disk.groupsOf(j.ID) {
			var seen muster.Counts
			for n := range g.Size {
				seen[w.disk.stateOf(muster.TaskID{Job: j.ID, Num: g.First + n})]++
			}
			if seen != g.Counts {
				return fmt.Errorf("group %d of job %d counts %v, but there are %v", g.Index, j.ID, g.Counts, seen)
			}
			sum = sum.Add(g.Counts)
		}
		if sum != j.Counts || j.State != sum.State() {
			return fmt.Errorf("job %d says %s %v, its groups %s %v", j.ID, j.State, j.Counts, sum.State(), sum)
		}
		if j.State.Final() != (j.FinishedAt != 0) {
			return fmt.Errorf("job %d is %s and finished at %q", j.ID, j.State, j.FinishedAt)
		}
	}
	return nil
}

// checkWorkers checks the grants of each worker.
func (w *simulation) checkWorkers() error {
	for _, wk := range w.workers {
		var used muster.Resources
		tasks := 0
		gpus := map[string]muster.Size{}
		for _, t := range w.disk.tasks {
			if !t.State.HoldsResources() || t.Grant == nil || t.Worker != wk.id {
				continue
			}
			tasks++
			used.CPUs += t.Grant.CPUs
			used.Memory += t.Grant.Memory
			used.Disk += t.Grant.Disk
			used.Slots += t.Grant.Slots
			for _, id := range t.Grant.GPUs {
				if t.Grant.GPUMemory == 0 {
					gpus[id] += 1 << 50
				} else {
					gpus[id] += t.Grant.GPUMemory
				}
			}
		}
		has := wk.offer.Resources
		if has.MaxTasks > 0 && tasks > has.MaxTasks {
			return fmt.Errorf("worker %s runs at most %d tasks and was given %d", wk.id, has.MaxTasks, tasks)
		}
		if used.CPUs > has.CPUs+1e-9 || used.Memory > has.Memory || used.Disk > has.Disk || used.Slots > has.Slots {
			return fmt.Errorf("worker %s has %+v and was given %+v", wk.id, has, used)
		}
		for _, g := range has.GPUs {
			if n := gpus[g.UUID]; n > g.Memory && n != 1<<50 {
				return fmt.Errorf("device %s was granted twice", g.UUID)
			}
			delete(gpus, g.UUID)
		}
		if len(gpus) > 0 {
			return fmt.Errorf("worker %s was assigned devices that it does not have: %v", wk.id, gpus)
		}
	}
	return nil
}

// diff compares what must survive a restart of two snapshots. It ignores what workers
// report again: when a worker was last seen, its load, whether it is connected.
func diff(a, b muster.Snapshot) string {
	a, b = durable(a), durable(b)
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return gocmp.Diff(a, b, cmpopts.EquateEmpty()) // exact, but a hundred times slower
}

func durable(s muster.Snapshot) muster.Snapshot {
	s.Workers = slices.Clone(s.Workers)
	for i := range s.Workers {
		w := &s.Workers[i]
		w.LastSeenAt, w.Load, w.Free, w.Running, w.State = 0, nil, nil, 0, ""
	}
	s.Jobs, s.Groups, s.Tasks = slices.Clone(s.Jobs), slices.Clone(s.Groups), slices.Clone(s.Tasks)
	for i := range s.Jobs {
		s.Jobs[i].Groups = nil
	}
	slices.SortFunc(s.Jobs, func(a, b muster.Job) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Groups, func(a, b muster.Group) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Index, b.Index))
	})
	slices.SortFunc(s.Tasks, func(a, b muster.Task) int { return compareTasks(a.ID, b.ID) })
	slices.SortFunc(s.Workers, func(a, b muster.Worker) int { return cmp.Compare(a.ID, b.ID) })
	return s
}
