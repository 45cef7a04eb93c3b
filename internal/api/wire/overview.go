package wire

import "github.com/muster-dev/muster"

// Overview is the current state of the fleet and its work.
type Overview struct {
	At             muster.Time   `json:"at"`
	Workers        WorkerCounts  `json:"workers"`
	Capacity       Amounts       `json:"capacity" doc:"resources of connected workers"`
	Reserved       Amounts       `json:"reserved" doc:"resources granted to assigned and running tasks"`
	Used           Used          `json:"used" doc:"load of the machines of connected workers at their last heartbeats"`
	Tasks          muster.Counts `json:"tasks" doc:"all tasks by state, including those of finished jobs"`
	Rate           Rate          `json:"rate" doc:"tasks per second, over the last minute"`
	OldestWaiting  *Oldest       `json:"oldest_waiting,omitempty" doc:"the task that has been queued longest; absent if none is queued"`
	CostPerHour    float64       `json:"cost_per_hour" doc:"sum of the prices of workers that run tasks"`
	PricePerHour   float64       `json:"price_per_hour" doc:"sum of the prices of all connected workers"`
	GPUs           []OverviewGPU `json:"gpus" nullable:"false" maxItems:"20000" doc:"devices of connected workers, at most 20,000"`
	Attention      []Attention   `json:"attention" nullable:"false" maxItems:"200" doc:"problems that need an operator, most severe first, at most 20 of each kind: if there are more, the last one of the kind has their number in more"`
	AttentionTotal int           `json:"attention_total" doc:"number of problems, including those not listed"`
}

// WorkerCounts is the number of workers in each state.
type WorkerCounts struct {
	Total       int `json:"total"`
	Pending     int `json:"pending" doc:"connected workers that wait for approval"`
	Active      int `json:"active"`
	Paused      int `json:"paused"`
	Draining    int `json:"draining"`
	Unreachable int `json:"unreachable"`
	Gone        int `json:"gone"`
	Constrained int `json:"constrained" doc:"connected workers that currently accept no new tasks by themselves"`
}

// Amounts is an amount of resources.
type Amounts struct {
	Slots     int         `json:"slots"`
	CPUs      float64     `json:"cpus" doc:"cores"`
	Memory    muster.Size `json:"memory"`
	GPUs      int         `json:"gpus" doc:"devices; if reserved, devices that a task has, whole or shared"`
	GPUMemory muster.Size `json:"gpu_memory"`
}

// Used is the load of machines.
type Used struct {
	CPUs      float64     `json:"cpus" doc:"cores: load of each machine times the cores that its worker offers"`
	Memory    muster.Size `json:"memory" doc:"bytes in use on the machines, by any program"`
	GPUs      float64     `json:"gpus" doc:"sum of the utilization of devices, each 0 to 1"`
	GPUMemory muster.Size `json:"gpu_memory"`
	Power     float64     `json:"power" doc:"watts of all devices"`
}

// Rate is the number of tasks per second.
type Rate struct {
	Started  float64 `json:"started"`
	Finished float64 `json:"finished" doc:"in any final state"`
	Failed   float64 `json:"failed" doc:"those of finished that failed or timed out"`
}

// Oldest is the task that has been queued longest.
type Oldest struct {
	Task     muster.TaskID `json:"task"`
	Job      muster.JobID  `json:"job"`
	Name     string        `json:"name" doc:"name of the job"`
	QueuedAt muster.Time   `json:"queued_at"`
	Summary  string        `json:"summary,omitempty" doc:"why it waits, in one sentence"`
}

// OverviewGPU is one device with its load at its worker's last heartbeat.
type OverviewGPU struct {
	Worker      muster.WorkerID `json:"worker"`
	WorkerName  string          `json:"worker_name"`
	Index       int             `json:"index"`
	UUID        string          `json:"uuid"`
	Name        string          `json:"name"`
	Utilization *float64        `json:"utilization,omitempty" doc:"share of the time in use, 0 to 1"`
	MemoryUsed  *muster.Size    `json:"memory_used,omitempty"`
	Memory      muster.Size     `json:"memory"`
	Temperature *float64        `json:"temperature,omitempty" doc:"degrees Celsius"`
	Power       *float64        `json:"power,omitempty" doc:"watts"`
	Quarantined string          `json:"quarantined,omitempty" doc:"why no task gets it"`
	Tasks       int             `json:"tasks" doc:"number of tasks that have it, whole or shared"`
}

// Attention is one problem that needs an operator.
type Attention struct {
	Severity   Severity        `json:"severity" enum:"critical,warning,info"`
	Kind       AttentionKind   `json:"kind" enum:"gpu_quarantined,worker_unreachable,worker_lost,worker_constrained,worker_avoided,worker_paused,worker_outdated,job_failing,disk_filling,gateway_down"`
	Worker     muster.WorkerID `json:"worker,omitempty"`
	WorkerName string          `json:"worker_name,omitempty"`
	Job        muster.JobID    `json:"job,omitempty"`
	JobName    string          `json:"job_name,omitempty"`
	GPU        string          `json:"gpu,omitempty" doc:"UUID"`
	More       int             `json:"more,omitempty" doc:"if set, this entry represents that number of further problems of its kind that are not listed; severity is their highest"`
	Message    string          `json:"message" doc:"one sentence"`
	Action     AttentionAction `json:"action" enum:"heal,resume,remove,open_job,open_worker,upgrade,free_disk,open_docs,list_jobs,list_workers" doc:"most helpful action"`
}

// Severity is the urgency of a problem.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // work is lost or has stopped
	Warning  Severity = "warning"  // this may happen soon, or a part of the fleet is idle
	Notice   Severity = "info"
)

// AttentionKind is the kind of a problem.
type AttentionKind string

// The kinds of problems.
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

// AttentionAction is what an operator should do.
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
)

// The actions for entries that represent several problems.
const (
	ActListJobs    AttentionAction = "list_jobs"
	ActListWorkers AttentionAction = "list_workers"
)
