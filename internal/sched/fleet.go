package sched

import (
	"cmp"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sched/queue"
	"github.com/muster-dev/muster/internal/sched/retry"
)

// FleetSnapshot is all workers and what needs attention in the live jobs.
type FleetSnapshot struct {
	At      muster.Time
	Workers []WorkerSnapshot // by id
	Failing []FailingJob     // live jobs with at least MinFailures failed attempts, newest first, at most MaxFailedScanned
	All     Workload         // of all projects
}

// WorkerSnapshot is one worker with what is kept in memory only.
type WorkerSnapshot struct {
	ID            muster.WorkerID
	Name          string
	State         muster.WorkerState
	Version       string
	Price         float64           // per hour
	Offers        *muster.Resources // must not be changed
	Reserved      FleetResources    // granted to its tasks
	GPUTasks      []int             // tasks on each of Offers.GPUs
	Running       int               // tasks that it holds
	Load          *muster.Load      // at its last heartbeat, or nil; must not be changed
	Constrained   string            // why the worker takes no tasks
	Avoided       string            // why the scheduler assigns it no tasks
	Deadline      muster.Time       // when a drain stops what still runs, or a pause ends; 0 for never
	CleanShutdown bool              // it left in an orderly shutdown
	SeenAt        muster.Time
}

// Connected reports whether the worker is connected.
func (w *WorkerSnapshot) Connected() bool {
	return w.State != muster.WorkerUnreachable && w.State != muster.WorkerGone
}

// FleetResources is an amount of what workers offer.
type FleetResources struct {
	Slots     int
	CPUs      float64
	Memory    muster.Size
	GPUs      int // devices that are used as a whole or in part
	GPUMemory muster.Size
}

// Limits of Snapshot.Failing.
const (
	minFailures = 3
	maxFailing  = 1_000
)

// FailingJob is a live job whose attempts keep failing.
type FailingJob struct {
	ID       muster.JobID
	Name     string
	Project  string
	Failures int // failed attempts since the server started, and earlier ones that its rows count
}

// Workload is the tasks of one project, or of all.
type Workload struct {
	Counts muster.Counts // of all stored tasks
	Rate   Rate          // over the last minute
	Total  Total         // since the server started
	Oldest *OldestTask   // nil if none is queued
}

// Rate is transitions per second.
type Rate struct{ Started, Finished, Failed float64 }

// Total is numbers of transitions.
type Total struct{ Started, Finished, Failed int64 }

// OldestTask is the task that has been queued for longest.
type OldestTask struct {
	Task     muster.TaskID
	Name     string // of the job
	QueuedAt muster.Time
}

// GPULoad returns the last reading of one of Offers.GPUs, or nil.
func (w *WorkerSnapshot) GPULoad(i int) *muster.GPULoad {
	if w.Load == nil {
		return nil
	}
	gpus, uuid := w.Load.GPUs, w.Offers.GPUs[i].UUID
	if i < len(gpus) && gpus[i].UUID == uuid { // usually the order is the same
		return &gpus[i]
	}
	for j := range gpus {
		if gpus[j].UUID == uuid {
			return &gpus[j]
		}
	}
	return nil
}

// Sums adds up what connected workers offer, have granted and use.
type Sums struct {
	Workers  int
	Capacity FleetResources
	Reserved FleetResources
	Used     Used
	Price    float64 // per hour, of all
	Cost     float64 // per hour, of those with tasks
}

// Used is the use of machines as of their workers' last heartbeats.
type Used struct {
	CPUs      float64 // cores: the load of each machine times the cores that its worker offers
	Memory    muster.Size
	GPUs      float64 // sum of the devices' utilization
	GPUMemory muster.Size
	Power     float64 // watts
}

// Sums adds up all connected workers.
func (p *FleetSnapshot) Sums() (s Sums) {
	for i := range p.Workers {
		w := &p.Workers[i]
		if !w.Connected() {
			continue
		}
		s.Workers++
		s.Price += w.Price
		if w.Running > 0 {
			s.Cost += w.Price
		}
		s.Capacity.Add(w.capacity())
		s.Reserved.Add(w.Reserved)
		u := w.Used()
		s.Used.CPUs += u.CPUs
		s.Used.Memory += u.Memory
		s.Used.GPUs += u.GPUs
		s.Used.GPUMemory += u.GPUMemory
		s.Used.Power += u.Power
	}
	return s
}

// Add adds b to a.
func (a *FleetResources) Add(b FleetResources) {
	a.Slots += b.Slots
	a.CPUs += b.CPUs
	a.Memory += b.Memory
	a.GPUs += b.GPUs
	a.GPUMemory += b.GPUMemory
}

func (w *WorkerSnapshot) capacity() FleetResources {
	a := FleetResources{Slots: w.Offers.Slots, CPUs: w.Offers.CPUs, Memory: w.Offers.Memory, GPUs: len(w.Offers.GPUs)}
	for i := range w.Offers.GPUs {
		a.GPUMemory += w.Offers.GPUs[i].Memory
	}
	return a
}

// Used returns the machine's use as of the worker's last heartbeat, and zeros before the first one.
func (w *WorkerSnapshot) Used() (u Used) {
	if w.Load == nil {
		return u
	}
	u.CPUs, u.Memory = w.Load.CPU*w.Offers.CPUs, w.Load.Memory
	for i := range w.Offers.GPUs {
		if l := w.GPULoad(i); l != nil {
			u.GPUs += orZero(l.Utilization)
			u.GPUMemory += orZero(l.Memory)
			u.Power += orZero(l.Power)
		}
	}
	return u
}

func orZero[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

// projectStats counts the tasks of a project and their transitions. Times must not go backwards between calls.
type projectStats struct {
	name   string
	counts muster.Counts
	dirty  bool // counts changed since the last Flush

	total   Total
	buckets [nBuckets]rateBucket
}

const (
	perMinute = 12
	nBuckets  = perMinute + 1
	bucketLen = muster.Time(60_000 / perMinute) // ms
)

// bucket counts the transitions in one interval of bucketLen.
type rateBucket struct {
	n     int64 // its number since 1970
	total Total
}

// recordTransition counts n tasks that changed from one state to another.
func (t *projectStats) recordTransition(now muster.Time, from, to muster.TaskState, n int) {
	t.counts[from] -= int64(n)
	t.counts[to] += int64(n)
	if to != muster.Running && !to.Final() {
		return
	}
	b := &t.buckets[int64(now/bucketLen)%nBuckets]
	if at := int64(now / bucketLen); b.n != at {
		*b = rateBucket{n: at}
	}
	for _, c := range []*Total{&t.total, &b.total} {
		switch to {
		case muster.Running:
			c.Started += int64(n)
		case muster.Failed, muster.TimedOut:
			c.Failed += int64(n)
			c.Finished += int64(n)
		default:
			c.Finished += int64(n)
		}
	}
}

// workload returns the counts, totals and rates. The rates are over the last minute; the bucket in which it began counts in part.
func (t *projectStats) workload(now muster.Time) Workload {
	w := Workload{Counts: t.counts, Total: t.total}
	newest := int64(now / bucketLen)
	for i := range t.buckets {
		b, share := &t.buckets[i], 1.0
		switch {
		case b.n <= newest-nBuckets || b.n > newest:
			continue
		case b.n == newest-perMinute:
			share = 1 - float64(now%bucketLen)/float64(bucketLen)
		}
		w.Rate.Started += share * float64(b.total.Started) / 60
		w.Rate.Finished += share * float64(b.total.Finished) / 60
		w.Rate.Failed += share * float64(b.total.Failed) / 60
	}
	return w
}

func (t *Total) add(o *Total) {
	t.Started += o.Started
	t.Finished += o.Finished
	t.Failed += o.Failed
}

// Add adds the counts, rates and totals of another project.
func (w *Workload) Add(o *Workload) {
	w.Counts = w.Counts.Add(o.Counts)
	w.Total.add(&o.Total)
	w.Rate.Started += o.Rate.Started
	w.Rate.Finished += o.Rate.Finished
	w.Rate.Failed += o.Rate.Failed
}

// FleetSnapshot returns all workers with what they hold, and the work of all projects. It examines every worker and
// its devices, but not their tasks.
func (s *State) FleetSnapshot(now muster.Time) FleetSnapshot {
	p := FleetSnapshot{At: now, Workers: make([]WorkerSnapshot, len(s.workers)), Failing: s.failingJobs()}
	for i, w := range s.workers {
		p.Workers[i] = workerSnapshot(now, w)
	}
	for _, t := range s.projectStats {
		work := t.workload(now)
		p.All.Add(&work)
	}
	p.All.Total.add(&s.removedTotal)
	p.All.Oldest = s.oldest(nil)
	return p
}

// Workload returns the work of one project.
func (s *State) Workload(now muster.Time, project string) Workload {
	t := s.projectStats[project]
	if t == nil {
		return Workload{}
	}
	w := t.workload(now)
	if p := s.projects[project]; p != nil {
		w.Oldest = s.oldest(p)
	}
	return w
}

func workerSnapshot(now muster.Time, w *worker) WorkerSnapshot {
	x := WorkerSnapshot{
		ID: w.row.ID, Name: w.row.Name, State: w.row.State, Version: w.row.Version, Price: w.row.Price,
		Running: len(w.held), Load: w.load, Deadline: w.row.Deadline, CleanShutdown: w.cleanShutdown, SeenAt: w.seen,
	}
	if w.reachable() {
		x.Constrained, x.Avoided = w.constrained, w.health.AvoidReason(now)
	}
	offers := w.row.Resources
	x.Offers = &offers
	allocated, devices, tasks := w.Usage.Allocated()
	x.Reserved = FleetResources{Slots: allocated.Slots, CPUs: allocated.CPUs, Memory: allocated.Memory, GPUs: devices, GPUMemory: allocated.GPUMemory}
	x.GPUTasks = tasks
	return x
}

// oldest returns the task of a project that has been queued for longest, or of all projects if p is nil.
func (s *State) oldest(p *queue.Project) *OldestTask {
	it := s.queue.Oldest(p, queuedAt)
	if it == nil {
		return nil
	}
	return &OldestTask{Task: muster.TaskID{Job: it.Job, Num: it.Num}, Name: s.jobs[it.Job].row.Name, QueuedAt: queuedAt(it)}
}

func queuedAt(it *queue.Item) muster.Time {
	switch owner := it.Owner.(type) {
	case *task:
		return owner.row.QueuedAt
	case *group:
		at := owner.row.UnmaterializedSince
		if owner.gang() {
			for _, t := range owner.tasks {
				at = max(at, t.row.QueuedAt)
			}
		}
		return at
	default:
		return 0
	}
}

// recordFailure counts the failed attempts of a live job.
func (s *State) recordFailure(j *job, e *retry.End) {
	if e.Outcome == muster.AttemptFailed || e.Outcome == muster.AttemptTimedOut {
		s.addFailures(j, 1)
	}
}

// recordUsage adds the usage and the log of an attempt that ends to its job. An attempt that started may have a log that it did not report.
func (s *State) recordUsage(t *task) {
	job := &t.group.job.row
	if u := t.row.Usage; u != nil && t.row.Grant != nil {
		job.AddUsage(u, len(t.row.Grant.GPUs))
		s.changedJob(t.group.job)
	}
	if t.row.LogSize > 0 || t.row.StartedAt > 0 {
		job.Usage.LogBytes += muster.Size(t.row.LogSize) + muster.LogOverhead
		s.changedJob(t.group.job)
	}
}

func (s *State) addFailures(j *job, n int) {
	j.failures += n
	if j.failures >= minFailures {
		s.failing[j.row.ID] = j
	}
}

func (s *State) failingJobs() []FailingJob {
	list := make([]FailingJob, 0, min(len(s.failing), maxFailing))
	for id, j := range s.failing {
		if len(list) == maxFailing {
			break
		}
		list = append(list, FailingJob{ID: id, Name: j.row.Name, Project: j.row.Project, Failures: j.failures})
	}
	slices.SortFunc(list, func(a, b FailingJob) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// statsOf returns the counts of a project.
func (s *State) statsOf(project string) *projectStats {
	t := s.projectStats[project]
	if t == nil {
		t = &projectStats{name: project}
		s.projectStats[project] = t
	}
	return t
}

func (s *State) changedTotals(t *projectStats) { addOnce(&s.out.totals, &t.dirty, t) }

// jobRemoved forgets the tasks of an ended job.
func (s *State) jobRemoved(ev JobRemoved) error {
	if s.jobs[ev.Job] != nil || slices.ContainsFunc(s.out.jobs, func(j *job) bool { return j.row.ID == ev.Job }) {
		return muster.Errorf(muster.Conflict, "job %s has not ended: cancel it before you remove it", ev.Job)
	}
	t := s.projectStats[ev.Project]
	for state, n := range ev.Counts {
		if n > 0 && (t == nil || t.counts[state] < n) {
			return muster.Errorf(muster.Internal, "job %s has more tasks than its project %q", ev.Job, ev.Project)
		}
	}
	if t == nil {
		return nil
	}
	for state, n := range ev.Counts {
		t.counts[state] -= n
	}
	s.changedTotals(t)
	if t.counts == (muster.Counts{}) {
		s.removedTotal.add(&t.total)
		delete(s.projectStats, ev.Project)
	}
	return nil
}

// projectTotals returns the counts of all tasks by project.
func (s *State) projectTotals() map[string]muster.Counts {
	totals := make(map[string]muster.Counts, len(s.projectStats))
	for name, t := range s.projectStats {
		totals[name] = t.counts
	}
	return totals
}

// checkProjectStats checks the counts of each project against its live jobs.
func (s *State) checkProjectStats() error {
	live := map[string]muster.Counts{}
	for _, j := range s.jobs {
		live[j.row.Project] = live[j.row.Project].Add(j.row.Counts)
	}
	for name, t := range s.projectStats {
		for _, state := range muster.TaskStates {
			if have, want := t.counts[state], live[name][state]; have < want || have > want && !state.Final() {
				return broken("project %q counts %d %s tasks, its live jobs have %d", name, have, state, want)
			}
		}
		delete(live, name)
	}
	if len(live) > 0 {
		return broken("%d projects with live jobs are not counted", len(live))
	}
	for id, j := range s.failing {
		if s.jobs[id] != j || j.failures < minFailures {
			return broken("job %s is listed as failing", id)
		}
	}
	return nil
}
