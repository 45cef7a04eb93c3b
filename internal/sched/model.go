package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/placement"
	"github.com/muster-dev/muster/internal/sched/gang"
	"github.com/muster-dev/muster/internal/sched/health"
	"github.com/muster-dev/muster/internal/sched/queue"
)

// job is a live job: one with a task that is not final.
type job struct {
	row       muster.Job // without Groups and Progress
	groups    []*group
	order     []*group   // every group after those that it needs
	dynamic   []*group   // whose arrays other stages determine
	graph     *dag.Graph // of the spec; see job.stageGraph
	project   *queue.Project
	stats     *projectStats // of the project
	failures  int           // failed attempts
	specDirty bool          // no row of it was flushed yet: the row must include the spec
	dirty     bool
	touched   bool // its counts changed since the last propagate

	newFailure bool // on_failure is stop, and a task failed since the last propagate
}

// group is a live job's stage.
type group struct {
	row        muster.Group
	job        *job
	needs      []*group
	dependents []*group // groups that need this one
	outcome    outcome  // as counted by the dependents
	unmet      unmet
	tasks      map[int]*task // by element: not final, or retained, or materialized ahead of the cursor
	outOfOrder int           // tasks at or after the cursor
	item       queue.Item    // the queue item of the unmaterialized elements
	timer      queue.Timer
	inputs     []muster.InputFile // set when the group becomes ready
	dirty      bool
	touched    bool         // its outcome changed: its dependents must be checked at the next propagate
	shape      *queue.Shape // of its tasks, once one of them was queued; the queue may evict it
}

// spec returns the spec of the group's tasks, with stage references resolved once it
// is ready.
func (g *group) spec() *muster.TaskSpec {
	if g.row.Resolved != nil {
		return g.row.Resolved
	}
	return &g.job.row.Spec.Tasks[g.row.Index]
}

// Size returns how many tasks the group's queue item represents.
func (g *group) Size() int {
	if g.gang() {
		return g.row.Size
	}
	return g.unmaterialized()
}

// CountBelow returns how many tasks of the group's queue item have a lower number.
func (g *group) CountBelow(num int) int {
	end := min(num-g.row.First, g.row.Size)
	if g.gang() {
		return max(end, 0)
	}
	n := max(end-g.row.Materialized, 0)
	if g.outOfOrder > 0 && n > 0 {
		for e := range g.tasks {
			if e >= g.row.Materialized && e < end {
				n--
			}
		}
	}
	return n
}

// unmaterialized returns how many elements have no row of their own.
func (g *group) unmaterialized() int { return g.row.Size - g.row.Materialized - g.outOfOrder }

// unsuccessful returns how many tasks ended without success.
func (g *group) unsuccessful() int64 { return g.row.Counts.Finished() - g.row.Counts[muster.Succeeded] }

// atLimit reports whether as many of the group's tasks run as its array allows at once.
func (g *group) atLimit() bool {
	a := g.spec().Array
	return a != nil && a.Limit > 0 && g.row.Counts[muster.Assigned]+g.row.Counts[muster.Running]+g.row.Counts[muster.Cancelling] >= int64(a.Limit)
}

// succeeded reports whether all tasks did.
func (g *group) succeeded() bool { return g.row.Counts[muster.Succeeded] == int64(g.row.Size) }

// sortedTasks returns the group's tasks in memory by number.
func (g *group) sortedTasks() []*task {
	return slices.SortedFunc(maps.Values(g.tasks), byNumber)
}

// task is a task with a row of its own.
type task struct {
	row            muster.Task
	group          *group
	item           queue.Item
	timer          queue.Timer
	dirty          bool
	storedProgress *progressSnapshot // the progress in its written row if row is newer, else nil

	// While a worker holds it:
	worker        *worker
	shape         *queue.Shape
	heldIndex     int           // position in worker.held
	accepted      bool          // the worker confirmed it
	lastRenewal   uint64        // the last of worker.renewals that listed it
	stopBy        muster.Time   // when a stopped attempt is abandoned
	preemptReason muster.Reason // why it is being preempted, or NoReason

	// While it is queued and its stage uses the result cache:
	lookup   bool // its result is to be looked up
	lookedUp bool // since it was queued
	parked   bool // it is not in the queue: see park
	alone    bool // an identical task has failed: it does not wait for others

	rejections int             // in a row
	avoid      queue.AvoidList // workers that rejected or failed it recently
	failedOn   []*worker       // workers on which attempts failed by the fleet's fault; see State.crashLimit
}

// progressSnapshot is the progress in a task's row.
type progressSnapshot struct {
	progress *float64
	step     string
	metrics  map[string]float64
}

// Size returns 1: the task's queue item represents only the task.
func (t *task) Size() int { return 1 }

// CountBelow returns 1 if the task has a lower number, else 0.
func (t *task) CountBelow(num int) int {
	if t.row.ID.Num < num {
		return 1
	}
	return 0
}

// attempt returns the id of the current attempt, or of the last one.
func (t *task) attempt() muster.AttemptID { return muster.AttemptID{Task: t.row.ID, N: t.row.Attempt} }

// element returns the position in the group.
func (t *task) element() int { return t.row.ID.Num - t.group.row.First }

// recordRuntime records the run time of a task that succeeded.
func (t *task) recordRuntime(end muster.Time) {
	if t.row.StartedAt > 0 {
		t.shape.Ran++
		t.shape.Runtime += end.Sub(t.row.StartedAt)
	}
}

func byNumber(a, b *task) int {
	return cmp.Or(cmp.Compare(a.row.ID.Job, b.row.ID.Job), cmp.Compare(a.row.ID.Num, b.row.ID.Num))
}

// worker is a known worker, connected or not.
type worker struct {
	queue.Worker

	row           muster.Worker // without Free, Running and Load
	held          []*task
	connected     bool // has a session
	responsive    bool // and was seen within Config.HeartbeatTimeout
	gone          bool
	drainSent     bool // received Drained
	cleanShutdown bool // is gone because it shut down in order
	evicting      bool // drains, and its tasks were preempted at its deadline
	shrunk        bool // offers less than its tasks hold
	constrained   string
	usedAttempts  map[muster.AttemptID]struct{} // not current, but it still has data of them: new attempts must not reuse their numbers
	seen          muster.Time                   // when it last sent something
	sessionStart  muster.Time                   // start of the session
	renewals      uint64                        // heartbeats so far
	load          *muster.Load
	health        health.Record
	avoided       bool // as last published: its health closes it
	timer         queue.Timer
	dirty         bool
}

// newWorker makes a worker that is not part of the fleet yet.
func newWorker(row muster.Worker) *worker {
	w := &worker{row: row, gone: true}
	w.Owner, w.timer.Subject = w, w
	return w
}

// unused returns the first attempt number from n on that the worker has no data of.
func (w *worker) unused(t muster.TaskID, n int) int {
	for len(w.usedAttempts) > 0 {
		if _, used := w.usedAttempts[muster.AttemptID{Task: t, N: n}]; !used {
			break
		}
		n++
	}
	return n
}

// FreeIn estimates in how long the worker will have room for so many tasks with need
// n. Each held task is expected to run as long as others of its shape did or, if it
// has run longer, as long again as it has run. Unless since is 0, it ignores tasks
// assigned since then.
func (w *worker) FreeIn(now muster.Time, n *placement.Need, tasks int, since muster.Time) muster.Duration {
	ends := make([]placement.ExpectedRelease, len(w.held))
	for i, t := range w.held {
		ends[i].Grant = t.row.Grant
		if since > 0 && t.row.AssignedAt >= since {
			continue
		}
		in := now.Sub(t.row.AssignedAt)
		if sh := t.shape; sh.Ran > 0 && sh.Runtime/muster.Duration(sh.Ran) > in {
			in = sh.Runtime/muster.Duration(sh.Ran) - in
		}
		ends[i].In = in
	}
	return w.Usage.FreeIn(n, tasks, ends)
}

// reachable reports whether the worker is connected and responsive.
func (w *worker) reachable() bool { return w.connected && w.responsive }

// sortedTasks returns the worker's tasks by number.
func (w *worker) sortedTasks() []*task {
	list := slices.Clone(w.held)
	slices.SortFunc(list, byNumber)
	return list
}

// newJob makes a job from its rows. It refuses rows that no valid spec has. The job has
// no project yet, and nothing of it is queued or has a timer.
func newJob(row muster.Job, groups []muster.Group) (*job, error) {
	spec := row.Spec
	if spec == nil || len(spec.Tasks) == 0 || len(spec.Tasks) != len(groups) {
		return nil, muster.Errorf(muster.InvalidSpec, "job %s has no stages, or not one group per stage", row.ID)
	}
	if row.Priority < muster.MinPriority || row.Priority > muster.MaxPriority {
		return nil, muster.Errorf(muster.InvalidSpec, "priority %d is not between %d and %d", row.Priority, muster.MinPriority, muster.MaxPriority)
	}
	row.Groups, row.Progress = nil, nil
	j := &job{row: row, groups: make([]*group, len(groups))}
	byName := make(map[string]*group, len(groups))
	for i := range groups {
		if groups[i].Index != i {
			return nil, muster.Errorf(muster.Internal, "job %s: group %d is at position %d", row.ID, groups[i].Index, i)
		}
		g := &group{row: groups[i], job: j}
		g.item = queue.Item{Owner: g, Job: row.ID}
		g.timer.Subject = g
		j.groups[i], byName[g.row.Name] = g, g
		if spec.Tasks[i].DynamicArray() {
			j.dynamic = append(j.dynamic, g)
		}
	}
	needs := make([][]int, len(j.groups))
	for i, g := range j.groups {
		for _, name := range spec.Tasks[i].Needs {
			n := byName[name]
			if n == nil {
				return nil, muster.Errorf(muster.InvalidSpec, "stage %q needs %q, which is not a stage of this job", g.row.Name, name)
			}
			g.needs, needs[i] = append(g.needs, n), append(needs[i], n.row.Index)
			n.dependents = append(n.dependents, g)
		}
	}
	order, ok := dag.TopoSort(needs)
	if !ok {
		return nil, muster.Errorf(muster.InvalidSpec, "dependency cycle among the stages of job %q", row.Name)
	}
	for _, i := range order {
		j.order = append(j.order, j.groups[i])
	}
	for _, g := range j.groups {
		g.unmet.unended = len(g.needs)
	}
	for _, g := range j.order {
		g.updateOutcome()
	}
	return j, nil
}

// group returns the group that has the task of that number, or nil.
func (j *job) group(num int) *group {
	lo, hi := 0, len(j.groups)
	for lo < hi {
		mid := (lo + hi) / 2
		switch g := j.groups[mid]; {
		case num < g.row.First:
			hi = mid
		case num >= g.row.First+g.row.Size:
			lo = mid + 1
		default:
			return g
		}
	}
	return nil
}

// queuePriority returns the priority under which the job's tasks are queued.
func (j *job) queuePriority() int {
	if j.row.Held {
		return queue.Held
	}
	return j.row.Priority
}

// rowWithProgress returns the job's row with its derived progress.
func (j *job) rowWithProgress() muster.Job {
	row := j.row
	row.Unsized = 0
	for _, g := range j.dynamic {
		if g.unsized() {
			row.Unsized++
		}
	}
	if total := row.Counts.Total(); total > 0 {
		share := float64(row.Counts.Finished()) / float64(total)
		row.Progress = &share
	}
	return row
}

// retryPlan is what is retried of one stage: these rows, and perhaps the unmaterialized elements.
type retryPlan struct {
	rows           []muster.Task // by number
	unmaterialized bool
}

// size returns how many tasks the plan for g retries.
func (p *retryPlan) size(g *group) int {
	if p.unmaterialized {
		return len(p.rows) + g.unmaterialized()
	}
	return len(p.rows)
}

// planRetry chooses what is retried of each stage, and counts it; it changes nothing. It leaves out a stage whose needs
// will not all be met: its tasks would be skipped at once.
func (j *job) planRetry(ev Retry) (plans []retryPlan, n int, err error) {
	plans = make([]retryPlan, len(j.groups))
	for i := range ev.Ended {
		row := &ev.Ended[i]
		g := j.group(row.ID.Num)
		if g == nil || row.ID.Job != j.row.ID {
			return nil, 0, muster.Errorf(muster.NotFound, "job %s has no task %s", j.row.ID, row.ID)
		}
		plans[g.row.Index].rows = append(plans[g.row.Index].rows, *row)
	}
	unsuccessful := make([]int64, len(j.groups)) // tasks that stay without success
	for _, g := range j.order {
		p := &plans[g.row.Index]
		blocked, unblocked := false, false
		for _, need := range g.needs {
			blocked = blocked || unsuccessful[need.row.Index] > 0 && !g.spec().RunsAfterFailure()
			unblocked = unblocked || plans[need.row.Index].size(need) > 0
		}
		if blocked {
			*p = retryPlan{}
		} else {
			p.selectTasks(g, ev.Unmaterialized, unblocked)
		}
		if k := p.size(g); g.gang() && k > 0 && k < g.row.Size {
			return nil, 0, muster.Errorf(muster.Conflict, "stage %q is a gang that is still being stopped: try again when all of its tasks have ended", g.row.Name)
		}
		unsuccessful[g.row.Index] = g.unsuccessful() - int64(p.size(g))
		if unsuccessful[g.row.Index] < 0 {
			return nil, 0, muster.Errorf(muster.Conflict, "job %s has changed meanwhile: try again", j.row.ID)
		}
		n += p.size(g)
	}
	return plans, n, nil
}

// selectTasks keeps the requested rows that ended without success, and adds tasks that
// were skipped because of retried stages, and the other members of a gang.
func (p *retryPlan) selectTasks(g *group, unmaterialized, unblocked bool) {
	wholeGang := g.gang() && len(p.rows) > 0
	ended := g.row.UnmaterializedState.Final() && g.row.UnmaterializedState != muster.Succeeded && g.unmaterialized() > 0
	p.unmaterialized = ended && (unmaterialized || wholeGang || unblocked && g.row.UnmaterializedState == muster.Skipped)
	selected := p.rows[:0]
	for _, row := range p.rows {
		e := row.ID.Num - g.row.First
		known := g.tasks[e]
		switch {
		case known != nil:
			row = known.row
		case e >= g.row.Materialized: // unmaterialized
			if p.unmaterialized || !ended {
				continue
			}
			row.State = g.row.UnmaterializedState
		}
		if row.State.Final() && row.State != muster.Succeeded {
			selected = append(selected, row)
		}
	}
	if unblocked || wholeGang {
		for _, t := range g.sortedTasks() {
			if t.row.State == muster.Skipped || wholeGang && t.row.State.Final() {
				selected = append(selected, t.row)
			}
		}
	}
	slices.SortStableFunc(selected, func(a, b muster.Task) int { return a.ID.Num - b.ID.Num })
	p.rows = slices.CompactFunc(selected, func(a, b muster.Task) bool { return a.ID == b.ID })
}

// resolve fills in what a stage takes from the stages that it needs, which have all
// ended: values for its ${…} and artifacts for its inputs.
func (g *group) resolve() (muster.Reason, error) {
	graph, result := g.job.stageGraph(), g.job.result
	if g.row.Resolved == nil {
		resolved, err := graph.Resolve(g.row.Index, result)
		if err != nil {
			return muster.BadReference, err
		}
		g.row.Resolved = resolved
	}
	inputs, err := graph.Inputs(g.row.Index, result)
	if err != nil {
		return muster.ArtifactMissing, fmt.Errorf("inputs: %w", err)
	}
	g.inputs = inputs
	return muster.NoReason, nil
}

// materialize gives an element a row of its own, in the state of the unmaterialized
// elements. The caller must update the queue item of the others.
func (g *group) materialize(element int) *task {
	t := &task{row: muster.Task{
		ID: muster.TaskID{Job: g.row.Job, Num: g.row.First + element}, Job: g.row.Job, Index: g.row.First + element,
		Group: g.row.Index, Name: g.row.Name, Kind: g.spec().Kind, Element: g.spec().Element(element),
		State: g.row.UnmaterializedState, Reason: g.row.Reason, Message: g.row.Message, CreatedAt: g.job.row.CreatedAt,
	}}
	switch {
	case g.row.UnmaterializedState == muster.Queued:
		t.row.QueuedAt = g.row.UnmaterializedSince
	case g.row.UnmaterializedState.Final():
		t.row.FinishedAt = g.row.UnmaterializedSince
	}
	g.attach(t)
	if element == g.row.Materialized {
		g.advance()
	}
	return t
}

// attach adds a task that has a row to its group.
func (g *group) attach(t *task) {
	t.group = g
	t.item = queue.Item{Owner: t, Job: t.row.ID.Job, Num: t.row.ID.Num}
	t.timer.Subject = t
	if g.tasks == nil {
		g.tasks = map[int]*task{}
	}
	g.tasks[t.element()] = t
	if t.element() >= g.row.Materialized {
		g.outOfOrder++
	}
}

// advance moves the cursor past the elements that have rows already.
func (g *group) advance() {
	for g.outOfOrder > 0 {
		t := g.tasks[g.row.Materialized]
		if t == nil {
			return
		}
		if t.row.State.Final() && !g.row.Retained {
			delete(g.tasks, g.row.Materialized)
		}
		g.row.Materialized++
		g.outOfOrder--
	}
}

// gang reports whether the group's tasks start together or not at all. They are
// queued as one: under the group's item, whether they have rows or not.
func (g *group) gang() bool { return g.job.row.Spec.Tasks[g.row.Index].Gang != nil }

// awaitingGang reports whether the task is a gang's member that is done and waits for the others.
func (t *task) awaitingGang() bool { return t.group.gang() && gang.AwaitsOthers(&t.row) }

// memberCounts counts the gang's members with rows, except one of them.
func (g *group) memberCounts(except *task) (n gang.Members) {
	for _, t := range g.tasks {
		if t != except {
			n.Count(&t.row)
		}
	}
	return n
}

// notBefore returns when the backoffs of all members are over.
func (g *group) notBefore() (at muster.Time) {
	for _, t := range g.tasks {
		at = max(at, t.row.NotBefore)
	}
	return at
}

// gangDue returns the next time at which a gang as a whole changes without an event, or 0.
func (g *group) gangDue() (at muster.Time) {
	if g.row.Counts[muster.Queued] < int64(g.row.Size) {
		return 0
	}
	if !g.item.Queued() {
		return g.notBefore()
	}
	for _, t := range g.tasks {
		at = queue.Earlier(at, t.avoid.NextExpiry())
	}
	return queue.Earlier(at, g.queueDeadline())
}

// queueDeadline returns when a queued gang times out, or 0.
func (g *group) queueDeadline() muster.Time {
	q := g.queueTimeout()
	if q <= 0 {
		return 0
	}
	since := g.notBefore()
	if g.unmaterialized() > 0 {
		since = g.row.UnmaterializedSince
	}
	for _, t := range g.tasks {
		since = max(since, t.row.QueuedAt)
	}
	return since.Add(q)
}

// checkGang checks the invariants of a gang.
func (g *group) checkGang() error {
	n := g.memberCounts(nil)
	n.Pending += g.unmaterialized()
	all := g.row.Counts[muster.Queued] == int64(g.row.Size)
	switch {
	case g.item.Queued() && !all:
		return broken("stage %q of job %s is a gang in the queue, but only %d members are queued", g.row.Name, g.row.Job, g.row.Counts[muster.Queued])
	case all && !g.item.Queued() && !g.timer.Armed():
		return broken("stage %q of job %s is a gang that is neither in the queue nor waiting for a timer", g.row.Name, g.row.Job)
	case g.row.Counts[muster.Succeeded] > 0 && !g.succeeded():
		return broken("stage %q of job %s is a gang, but only %d members have succeeded", g.row.Name, g.row.Job, g.row.Counts[muster.Succeeded])
	}
	for _, t := range g.tasks {
		switch {
		case t.item.Queued():
			return broken("task %s is in the queue without its gang", t.row.ID)
		case n.Broken() && t.worker != nil && t.preemptReason == muster.NoReason && t.row.State != muster.Cancelling, n.Broken() && t.awaitingGang():
			return broken("task %s keeps running though its gang is broken", t.row.ID)
		}
	}
	return nil
}
