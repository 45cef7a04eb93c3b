package muster

// Rows is the rows that one decision inserts or replaces by key, in one transaction.
type Rows struct {
	Jobs           []Job // Spec is set only if the job is new: it never changes
	Groups         []Group
	Tasks          []Task
	Attempts       []Attempt    // ended attempts of unfinished tasks
	LateReports    []LateReport // for diagnosis; only of attempts that were assigned to their worker
	Workers        []Worker
	RemovedWorkers []WorkerID // workers to delete
	NextJob        JobID      // the next job's number, if it skips some; else 0
	Totals         []ProjectTotal
	CacheEntries   []CacheEntry // new results; they replace those with the same key
	CacheHits      []CacheHit
}

// ProjectTotal is the counts of all stored tasks of a project. All zero means that it has none.
type ProjectTotal struct {
	Project string
	Counts  Counts
}

// Empty reports whether r has no rows.
func (r *Rows) Empty() bool {
	return len(r.Jobs)+len(r.Groups)+len(r.Tasks)+len(r.Attempts)+len(r.LateReports)+len(r.Workers)+len(r.RemovedWorkers)+len(r.Totals)+len(r.CacheEntries)+len(r.CacheHits) == 0 && r.NextJob == 0
}

// Snapshot is the stored state with which the scheduler starts: unfinished jobs
// with their groups and unfinished tasks, the finished tasks of Retained groups,
// the finished tasks from their group's Materialized on (such as a cancelled part
// of an array), and all workers.
type Snapshot struct {
	NextJob JobID // number of the next job
	Jobs    []Job // with Spec
	Groups  []Group
	Tasks   []Task
	Workers []Worker
	Totals  map[string]Counts // tasks of all jobs, finished or not, by project
}
