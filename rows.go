package muster

// Rows is what one decision changes in the store: whole rows, to be inserted or
// replaced by key, all in one transaction.
type Rows struct {
	Jobs           []Job // Spec is set when the job is new, else nil: it never changes
	Groups         []Group
	Tasks          []Task
	Attempts       []Attempt    // ended attempts of tasks that go on
	LateReports    []LateReport // kept for diagnosis only, and only those of attempts that were given to their worker
	Workers        []Worker
	RemovedWorkers []WorkerID // workers removed for good
	NextJob        JobID      // the number that the next job gets, if it skips some; else 0
}

// Empty reports whether there is nothing to write.
func (r *Rows) Empty() bool {
	return len(r.Jobs)+len(r.Groups)+len(r.Tasks)+len(r.Attempts)+len(r.LateReports)+len(r.Workers)+len(r.RemovedWorkers) == 0 && r.NextJob == 0
}

// Snapshot is what the scheduler needs of the store to start: every job that is
// not final with its groups, their tasks that are not final, the finished tasks
// of groups that are Kept, the finished tasks from their group's Next on
// (singled out before the cursor came by, such as a cancelled part of an array),
// and all workers.
type Snapshot struct {
	NextJob JobID // the number that the next accepted job gets
	Jobs    []Job // with Spec
	Groups  []Group
	Tasks   []Task
	Workers []Worker
	Totals  map[string]Counts // tasks of all jobs, live and ended, by project
}
