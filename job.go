package muster

import "encoding/json"

// Job is the state of a job, as stored and as the API returns it.
type Job struct {
	ID         JobID             `json:"id"`
	UID        string            `json:"-"` // unique across servers and backups; ID may be reused after a restore
	Name       string            `json:"name"`
	Project    string            `json:"project"`
	State      JobState          `json:"state"`
	Priority   int               `json:"priority"`
	Held       bool              `json:"held,omitempty"` // its tasks are not started until it is released
	Labels     map[string]string `json:"labels,omitempty"`
	Kind       string            `json:"kind,omitempty"` // if all stages have the same kind
	Counts     Counts            `json:"counts"`
	Unsized    int               `json:"unsized,omitempty"`  // stages whose number of tasks is not known yet, each counted as one task
	Progress   *float64          `json:"progress,omitempty"` // share of finished tasks, 0 to 1; running tasks count with their own progress
	CreatedAt  Time              `json:"created_at,omitzero"`
	StartedAt  Time              `json:"started_at,omitzero"`
	FinishedAt Time              `json:"finished_at,omitzero"`
	RetriedAt  Time              `json:"-"`                    // last retry of the finished job; 0 if never
	Owner      string            `json:"owner,omitempty"`      // id of the key that submitted it
	OwnerName  string            `json:"owner_name,omitempty"` // name of that key, if it still exists
	Cost       float64           `json:"cost,omitempty"`       // of finished attempts: worker's price times wall time
	Usage      JobUsage          `json:"-"`
	Spec       *Spec             `json:"spec,omitempty"`
	Groups     []Group           `json:"groups,omitempty"`
	JobRetention
}

// JobRetention is what retention recorded about a job. Only reads of the API return it.
type JobRetention struct {
	KeptAt             Time `json:"kept_at,omitzero"`              // since when it is exempt from retention and prune; 0 if it is not
	LogsRemovedAt      Time `json:"logs_removed_at,omitzero"`      // when logs of the ended job were last deleted
	ArtifactsRemovedAt Time `json:"artifacts_removed_at,omitzero"` // when its artifacts and checkpoints were deleted
}

// JobUsage is the total usage of a job's finished attempts that reported it. Job.Cost is separate.
type JobUsage struct {
	EnergyWh    float64 // of their devices
	CPUSeconds  float64
	GPUSeconds  float64 // wall time times granted devices, shared or not
	WallSeconds float64
	MemoryPeak  Size // highest of any attempt
	Attempts    int64
	LogBytes    Size // estimated space of the logs of all finished attempts; 0 after they were deleted
}

// LogOverhead is the estimated space of an attempt's log on disk besides its bytes.
const LogOverhead Size = 4 << 10

// AddUsage adds the usage of an attempt that was granted so many devices.
func (j *Job) AddUsage(u *Usage, devices int) {
	j.Cost += u.Cost
	j.Usage.EnergyWh += u.EnergyWh
	j.Usage.CPUSeconds += u.CPUSeconds
	j.Usage.GPUSeconds += u.WallSeconds * float64(devices)
	j.Usage.WallSeconds += u.WallSeconds
	j.Usage.MemoryPeak = max(j.Usage.MemoryPeak, u.MemoryPeak)
	j.Usage.Attempts++
}

// Group is one stage of a job and the state that its tasks share. Its elements
// are the job's tasks First to First+Size-1. Elements from Materialized on that
// have no row of their own are all in UnmaterializedState, so that a million
// waiting tasks take no more space than one.
type Group struct {
	Job                 JobID     `json:"job"`
	Index               int       `json:"index"`
	Name                string    `json:"name"`
	First               int       `json:"first"`
	Size                int       `json:"size"`
	Unsized             bool      `json:"unsized,omitempty"` // the size is not known yet: the result of another stage determines it; in answers of the API
	Materialized        int       `json:"-"`                 // elements [0, Materialized) have rows of their own
	UnmaterializedState TaskState `json:"-"`
	UnmaterializedSince Time      `json:"-"` // when the rest entered UnmaterializedState
	Reason              Reason    `json:"-"` // of UnmaterializedState, if it is final
	Message             string    `json:"-"`
	Counts              Counts    `json:"counts"`
	State               string    `json:"state,omitempty"` // derived from Counts, in answers of the API
	Resolved            *TaskSpec `json:"-"`               // the stage's spec with ${stage…} resolved, once it is ready
	Retained            bool      `json:"-"`               // other stages read its finished tasks

	StartedAt  Time `json:"started_at,omitzero"`  // of its first attempt
	FinishedAt Time `json:"finished_at,omitzero"` // of its last task
}

// Counts is the number of tasks in each state.
type Counts [len(taskStateNames)]int64

// MarshalJSON writes an object with every state by name.
func (c Counts) MarshalJSON() ([]byte, error) {
	m := make(map[string]int64, len(TaskStates))
	for _, s := range TaskStates {
		m[s.String()] = c[s]
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads the object; missing states are 0.
func (c *Counts) UnmarshalJSON(b []byte) error {
	var m map[TaskState]int64
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*c = Counts{}
	for s, n := range m {
		c[s] = n
	}
	return nil
}

// Total returns the number of tasks.
func (c Counts) Total() int64 {
	var n int64
	for _, s := range TaskStates {
		n += c[s]
	}
	return n
}

// Finished returns the number of tasks in a final state.
func (c Counts) Finished() int64 {
	return c[Succeeded] + c[Failed] + c[TimedOut] + c[Cancelled] + c[Skipped]
}

// Add returns the sum of c and d.
func (c Counts) Add(d Counts) Counts {
	for i, n := range d {
		c[i] += n
	}
	return c
}

// State derives the job's state. While a task is not final, the job is running if
// any task was assigned or has finished, else queued if any task is queued, else
// waiting. When all are final, failed takes precedence over timed_out, cancelled
// and succeeded, in this order.
func (c Counts) State() JobState {
	done := c.Finished()
	switch {
	case done < c.Total():
		switch {
		case c[Assigned]+c[Running]+c[Cancelling]+done > 0:
			return JobRunning
		case c[Queued] > 0:
			return JobQueued
		default:
			return JobWaiting
		}
	case c[Failed] > 0:
		return JobFailed
	case c[TimedOut] > 0:
		return JobTimedOut
	case c[Cancelled] > 0:
		return JobCancelled
	default:
		return JobSucceeded
	}
}

// StageState is State for the tasks of one stage: skipped if all of them were.
func (c Counts) StageState() string {
	if n := c.Total(); n > 0 && c[Skipped] == n {
		return Skipped.String()
	}
	return string(c.State())
}
