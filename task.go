package muster

import (
	"encoding/json"
	"strings"
)

// Task is the state of a task, as stored and as the API returns it. Worker, times,
// outcome and grant are those of the current or last attempt.
type Task struct {
	ID          TaskID             `json:"id"`
	Job         JobID              `json:"job"`
	Index       int                `json:"index"` // ID.Num
	Group       int                `json:"group"`
	Name        string             `json:"name"`
	Kind        string             `json:"kind"`
	Element     string             `json:"element,omitempty"` // of an array or matrix: "7", "lr=0.1,seed=2"
	State       TaskState          `json:"state"`
	Reason      Reason             `json:"reason,omitempty"`
	Message     string             `json:"message,omitempty"`
	ExitCode    *int               `json:"exit_code,omitempty"`
	Attempt     int                `json:"attempt,omitempty"` // number of the current or last attempt; 0 means none yet
	Retries     int                `json:"retried,omitempty"` // retries that count against retries.max
	Crashes     int                `json:"crashes,omitempty"` // attempts lost by a fault of the fleet
	Worker      WorkerID           `json:"worker,omitempty"`
	WorkerName  string             `json:"worker_name,omitempty"` // current name, for callers that may see workers
	Grant       *Grant             `json:"grant,omitempty"`
	Checkpoint  string             `json:"checkpoint,omitempty"` // SHA-256 of the Tree last saved from $MUSTER_CHECKPOINT
	Progress    *float64           `json:"progress,omitempty"`   // 0 to 1
	Step        string             `json:"step,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Result      json.RawMessage    `json:"result,omitempty"`
	Artifacts   []Artifact         `json:"artifacts,omitempty"` // while it runs, its live artifacts
	Usage       *Usage             `json:"usage,omitempty"`
	Image       string             `json:"image,omitempty"`    // image by digest; "" for a process
	LogSize     int64              `json:"log_size,omitempty"` // bytes of the last attempt's finished log
	Origin      TaskID             `json:"origin,omitzero"`    // task whose result and artifacts this one has without running: of an earlier job, or Cached
	Cached      bool               `json:"cached,omitempty"`   // the result is from the result cache
	Cache       *TaskCache         `json:"-"`                  // nil if the task does not use the result cache, or that was not looked up yet
	CreatedAt   Time               `json:"created_at,omitzero"`
	QueuedAt    Time               `json:"queued_at,omitzero"`
	NotBefore   Time               `json:"not_before,omitzero"` // a retry waits until then
	AssignedAt  Time               `json:"assigned_at,omitzero"`
	StartedAt   Time               `json:"started_at,omitzero"`
	FinishedAt  Time               `json:"finished_at,omitzero"`
	Synthesized bool               `json:"-"` // derived from its group: it has no row of its own
}

// Headline returns the first line of a message of a task. If the program failed by itself, the following lines are the last ones that it
// printed on standard error.
func Headline(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	return first
}

// Attempt is one execution of a task. The store has rows only for attempts that
// ended without ending their task; the API returns all.
type Attempt struct {
	ID         AttemptID  `json:"id"`
	Worker     WorkerID   `json:"worker,omitempty"`
	WorkerName string     `json:"worker_name,omitempty"` // as Task.WorkerName
	Outcome    Outcome    `json:"outcome,omitempty"`     // empty while it is open
	Reason     Reason     `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	Artifacts  []Artifact `json:"artifacts,omitempty"`
	Usage      *Usage     `json:"usage,omitempty"`
	Image      string     `json:"image,omitempty"` // as Task.Image
	LogSize    int64      `json:"log_size,omitempty"`
	AssignedAt Time       `json:"assigned_at,omitzero"`
	StartedAt  Time       `json:"started_at,omitzero"`
	FinishedAt Time       `json:"finished_at,omitzero"`
}

// Usage is the resources that an attempt consumed. Absent fields were not measured.
type Usage struct {
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	CPUAvg      float64 `json:"cpu_avg"`                 // cores
	CPUPeak     float64 `json:"cpu_peak,omitempty"`      // cores, over one sampling period
	MemoryAvg   Size    `json:"memory_avg,omitempty"`    // of all its processes
	MemoryPeak  Size    `json:"memory_peak,omitempty"`   // of all its processes; without control groups, of the largest one
	DiskPeak    Size    `json:"disk_peak,omitempty"`     // of its folders
	ReadBytes   Size    `json:"read_bytes,omitempty"`    // from disks
	WriteBytes  Size    `json:"write_bytes,omitempty"`   // to disks
	NetIn       Size    `json:"net_in,omitempty"`        // bytes received by the whole host: the kernel does not count per task
	NetOut      Size    `json:"net_out,omitempty"`       // bytes sent by the whole host
	PIDsPeak    int     `json:"pids_peak,omitempty"`     // processes and threads
	GPUAvg      float64 `json:"gpu_avg,omitempty"`       // utilization, 0 to 1, over its devices
	GPUPeak     float64 `json:"gpu_peak,omitempty"`      // of any of its devices
	VRAMPeak    Size    `json:"vram_peak,omitempty"`     // its own, over all its devices
	GPUTempPeak float64 `json:"gpu_temp_peak,omitempty"` // degrees Celsius
	PowerAvg    float64 `json:"power_avg,omitempty"`     // watts, of its devices
	EnergyWh    float64 `json:"energy_wh,omitempty"`     // of its devices
	Cost        float64 `json:"cost,omitempty"`          // the worker's price times the wall time
}

// Sample is the usage of an attempt over one sampling period. Absent fields were
// not measured. It is stored as JSON in a record of the attempt's log (tasklog.Usage).
type Sample struct {
	At     Time        `json:"at"`
	CPU    *float64    `json:"cpu,omitempty"`    // cores
	Memory *Size       `json:"memory,omitempty"` // bytes, of all its processes
	Disk   *Size       `json:"disk,omitempty"`   // bytes in its folders
	Read   *float64    `json:"read,omitempty"`   // bytes a second from disks
	Write  *float64    `json:"write,omitempty"`  // bytes a second to disks
	NetIn  *float64    `json:"net_in,omitempty"` // bytes a second, of the whole host without loopback
	NetOut *float64    `json:"net_out,omitempty"`
	PIDs   int         `json:"pids,omitempty"` // processes and threads
	GPUs   []GPUSample `json:"gpus,omitempty"` // granted devices, in order
}

// GPUSample is a GPULoad and the attempt's own use of the device.
type GPUSample struct {
	GPULoad
	OwnMemory *Size `json:"own,omitempty"` // device memory of the attempt's processes, bytes
}

// Report is a worker's report that an attempt ended.
type Report struct {
	Attempt    AttemptID       `json:"attempt"`
	Outcome    Outcome         `json:"outcome"` // never AttemptOpen
	Reason     Reason          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	ExitCode   *int            `json:"exit_code,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Artifacts  []Artifact      `json:"artifacts,omitempty"`
	Usage      *Usage          `json:"usage,omitempty"`
	Image      string          `json:"image,omitempty"` // as Task.Image
	LogSize    int64           `json:"log_size,omitempty"`
	StartedAt  Time            `json:"started_at,omitzero"` // absent if it never started
	FinishedAt Time            `json:"finished_at"`
}

// LateReport is a report of an attempt that the server had already given up. It has no effect on its task.
type LateReport struct {
	Report

	Worker     WorkerID `json:"worker"`
	WorkerName string   `json:"worker_name,omitempty"` // as Task.WorkerName
	At         Time     `json:"at"`                    // when it arrived
}

// Progress is a progress report of a running task. Absent fields are unchanged.
type Progress struct {
	Attempt  AttemptID          `json:"attempt"`
	Progress *float64           `json:"progress,omitempty"` // 0 to 1
	Step     *string            `json:"step,omitempty"`
	Metrics  map[string]float64 `json:"metrics,omitempty"`

	Artifacts []Artifact `json:"artifacts,omitempty"` // all live artifacts: see MaxLiveFiles
}

// Files in the folder LiveDir of $MUSTER_OUT are live artifacts, available while the task runs: at most MaxLiveFiles
// files of at most MaxLiveFileSize bytes.
const (
	LiveDir         = "live"
	MaxLiveFiles    = 16
	MaxLiveFileSize = 16 << 20
)
