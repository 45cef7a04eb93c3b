package wire

import "github.com/muster-dev/muster"

// Overview is the whole fleet and its work at one moment.
type Overview struct {
	At             muster.Time   `json:"at"`
	Workers        WorkerCounts  `json:"workers"`
	Capacity       Amounts       `json:"capacity" doc:"what connected workers offer"`
	Reserved       Amounts       `json:"reserved" doc:"of that, what running and assigned tasks were given"`
	Used           Used          `json:"used" doc:"what the machines of connected workers did at their last heartbeats"`
	Tasks          muster.Counts `json:"tasks" doc:"all tasks by state, those of ended jobs included"`
	Rate           Rate          `json:"rate" doc:"tasks a second, over the last minute"`
	OldestWaiting  *Oldest       `json:"oldest_waiting,omitempty" doc:"the task that has been queued for longest; absent if none is queued"`
	CostPerHour    float64       `json:"cost_per_hour" doc:"prices of the workers that run tasks"`
	PricePerHour   float64       `json:"price_per_hour" doc:"prices of all connected workers"`
	GPUs           []OverviewGPU `json:"gpus" nullable:"false" maxItems:"20000" doc:"devices of connected workers, at most 20,000"`
	Attention      []Attention   `json:"attention" nullable:"false" maxItems:"200" doc:"what needs a person, the most severe first, at most 20 of each kind: where there are more, the last one of the kind says how many in more"`
	AttentionTotal int           `json:"attention_total" doc:"how many things need a person, those that are not listed included"`
}

// WorkerCounts says how many workers are in each state.
type WorkerCounts struct {
	Total       int `json:"total"`
	Active      int `json:"active"`
	Paused      int `json:"paused"`
	Draining    int `json:"draining"`
	Unreachable int `json:"unreachable"`
	Gone        int `json:"gone"`
	Constrained int `json:"constrained" doc:"of the connected ones, those that take nothing new of their own accord"`
}

// Amounts is a part of what workers offer.
type Amounts struct {
	Slots     int         `json:"slots"`
	CPUs      float64     `json:"cpus" doc:"cores"`
	Memory    muster.Size `json:"memory"`
	GPUs      int         `json:"gpus" doc:"devices; reserved: of which a task has all or a share"`
	GPUMemory muster.Size `json:"gpu_memory"`
}

// Used is what machines do.
type Used struct {
	CPUs      float64     `json:"cpus" doc:"cores: the load of each machine times the cores that its worker offers"`
	Memory    muster.Size `json:"memory" doc:"bytes in use on the machines, by whatever program"`
	GPUs      float64     `json:"gpus" doc:"sum of the devices' utilization, each 0 to 1"`
	GPUMemory muster.Size `json:"gpu_memory"`
	Power     float64     `json:"power" doc:"watts, of the devices"`
}

// Rate is how many tasks a second did something.
type Rate struct {
	Started  float64 `json:"started"`
	Finished float64 `json:"finished" doc:"in any final state"`
	Failed   float64 `json:"failed" doc:"of finished, those that failed or timed out"`
}

// Oldest is the task that has been queued for longest.
type Oldest struct {
	Task     muster.TaskID `json:"task"`
	Job      muster.JobID  `json:"job"`
	Name     string        `json:"name" doc:"of the job"`
	QueuedAt muster.Time   `json:"queued_at"`
	Summary  string        `json:"summary,omitempty" doc:"one sentence: why it waits"`
}

// OverviewGPU is one device with what it did at its worker's last heartbeat.
type OverviewGPU struct {
	Worker      muster.WorkerID `json:"worker"`
	WorkerName  string          `json:"worker_name"`
	Index       int             `json:"index"`
	UUID        string          `json:"uuid"`
	Name        string          `json:"name"`
	Utilization *float64        `json:"utilization,omitempty" doc:"share of the time in which it computed, 0 to 1"`
	MemoryUsed  *muster.Size    `json:"memory_used,omitempty"`
	Memory      muster.Size     `json:"memory"`
	Temperature *float64        `json:"temperature,omitempty" doc:"degrees Celsius"`
	Power       *float64        `json:"power,omitempty" doc:"watts"`
	Quarantined string          `json:"quarantined,omitempty" doc:"why it is given to no task"`
	Tasks       int             `json:"tasks" doc:"that have all of it or a share"`
}

// Attention is one thing that needs a person.
type Attention struct {
	Severity   Severity        `json:"severity" enum:"critical,warning,info"`
	Kind       AttentionKind   `json:"kind" enum:"gpu_quarantined,worker_unreachable,worker_lost,worker_constrained,worker_avoided,worker_paused,worker_outdated,job_failing,disk_filling,gateway_down"`
	Worker     muster.WorkerID `json:"worker,omitempty"`
	WorkerName string          `json:"worker_name,omitempty"`
	Job        muster.JobID    `json:"job,omitempty"`
	JobName    string          `json:"job_name,omitempty"`
	GPU        string          `json:"gpu,omitempty" doc:"UUID"`
	More       int             `json:"more,omitempty" doc:"if there, this is not about one thing: it stands for so many more of its kind that are not listed, the most severe of which has this severity"`
	Message    string          `json:"message" doc:"one sentence"`
	Action     AttentionAction `json:"action" enum:"heal,resume,remove,open_job,open_worker,upgrade,free_disk,open_docs,list_jobs,list_workers" doc:"what helps most"`
}

// Severity says how soon somebody should look.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // work is lost or stands still
	Warning  Severity = "warning"  // it soon may, or a part of the fleet does nothing
	Notice   Severity = "info"
)

// AttentionKind names what needs attention.
type AttentionKind string

// The kinds of what needs attention.
const (
	GPUQuarantined    AttentionKind = "gpu_quarantined"
	WorkerUnreachable AttentionKind = "worker_unreachable"
	WorkerLost        AttentionKind = "worker_lost"
	WorkerConstrained AttentionKind = "worker_constrained"
	WorkerAvoided     AttentionKind = "worker_avoided"
	WorkerPaused      AttentionKind = "worker_paused"
	WorkerOutdated    AttentionKind = "worker_outdated"
	JobFailing        AttentionKind = "job_failing"
	DiskFilling       AttentionKind = "disk_filling"
	GatewayDown       AttentionKind = "gateway_down"
)

// AttentionAction names what a person does about it.
type AttentionAction string

// The actions.
const (
	ActHeal       AttentionAction = "heal"
	ActResume     AttentionAction = "resume"
	ActRemove     AttentionAction = "remove"
	ActOpenJob    AttentionAction = "open_job"
	ActOpenWorker AttentionAction = "open_worker"
	ActUpgrade    AttentionAction = "upgrade"
	ActFreeDisk   AttentionAction = "free_disk"
	ActOpenDocs   AttentionAction = "open_docs"

	// Where the rest of a kind is.
	ActListJobs    AttentionAction = "list_jobs"
	ActListWorkers AttentionAction = "list_workers"
)
