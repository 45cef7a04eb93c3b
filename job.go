package muster

import "encoding/json"

// Job is the state of one job, as stored and as the API shows it.
type Job struct {
	ID         JobID             `json:"id"`
	UID        string            `json:"-"` // unique over all servers and their backups; a number may be used again after a restore
	Name       string            `json:"name"`
	Project    string            `json:"project"`
	State      JobState          `json:"state"`
	Priority   int               `json:"priority"`
	Labels     map[string]string `json:"labels,omitempty"`
	Kind       string            `json:"kind,omitempty"` // if all stages have the same
	Counts     Counts            `json:"counts"`
	Progress   *float64          `json:"progress,omitempty"` // share of the tasks that is done, 0 to 1; running ones count as they report
	CreatedAt  Time              `json:"created_at,omitzero"`
	StartedAt  Time              `json:"started_at,omitzero"`
	FinishedAt Time              `json:"finished_at,omitzero"`
	RetriedAt  Time              `json:"-"`                    // when it was last retried after it had ended; 0 if it never was
	Owner      string            `json:"owner,omitempty"`      // the key that submitted it
	OwnerName  string            `json:"owner_name,omitempty"` // of that key, where it is still there
	Cost       float64           `json:"cost,omitempty"`       // of its ended attempts: the workers' prices times the wall time
	Usage      JobUsage          `json:"-"`
	Spec       *Spec             `json:"spec,omitempty"`
	Groups     []Group           `json:"groups,omitempty"`
}

// JobUsage is what all ended attempts of a job that reported their usage used together, beside Cost.
type JobUsage struct {
	EnergyWh    float64 // of their devices
	CPUSeconds  float64
	GPUSeconds  float64 // wall time times granted devices, also where a device was shared
	WallSeconds float64
	MemoryPeak  Size // of one attempt
	Attempts    int64
}

// AddUsage adds what an attempt used that was granted so many devices.
func (j *Job) AddUsage(u *Usage, devices int) {
	j.Cost += u.Cost
	j.Usage.EnergyWh += u.EnergyWh
	j.Usage.CPUSeconds += u.CPUSeconds
	j.Usage.GPUSeconds += u.WallSeconds * float64(devices)
	j.Usage.WallSeconds += u.WallSeconds
	j.Usage.MemoryPeak = max(j.Usage.MemoryPeak, u.MemoryPeak)
	j.Usage.Attempts++
}

// Group is one stage of a job and all that its tasks have in common. Tasks
// First to First+Size-1 of the job are its elements. Those from Next on that
// have no row of their own are all in state Rest: a million tasks that wait
// take no more room than one.
type Group struct {
	Job                 JobID     `json:"job"`
	Index               int       `json:"index"`
	Name                string    `json:"name"`
	First               int       `json:"first"`
	Size                int       `json:"size"`
	Materialized        int       `json:"-"` // elements [0, Next) have rows of their own
	UnmaterializedState TaskState `json:"-"`
	UnmaterializedSince Time      `json:"-"` // when the rest came to be in Rest
	Reason              Reason    `json:"-"` // why the rest is in Rest, if it is final
	Message             string    `json:"-"`
	Counts              Counts    `json:"counts"`
	Resolved            *TaskSpec `json:"-"` // the stage's spec with ${stage…} resolved, once it was ready
	Retained            bool      `json:"-"` // finished tasks of it are read by other stages

	StartedAt  Time `json:"started_at,omitzero"`  // of its first attempt
	FinishedAt Time `json:"finished_at,omitzero"` // of its last task
}

// Counts says how many tasks are in each state.
type Counts [len(taskStateNames)]int64

// MarshalJSON writes an object with every state's name.
func (c Counts) MarshalJSON() ([]byte, error) {
	m := make(map[string]int64, len(TaskStates))
	for _, s := range TaskStates {
		m[s.String()] = c[s]
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON writes; missing states count 0.
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

// Add returns the sum of both.
func (c Counts) Add(d Counts) Counts {
	for i, n := range d {
		c[i] += n
	}
	return c
}

// State derives the job's state. While a task is not final the job is running
// if any has been started, else queued if any may be placed, else waiting. At
// the end failed beats timed_out beats cancelled beats succeeded.
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
