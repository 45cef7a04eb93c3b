package trainforge

import (
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
)

// Statuses of a job.
const (
	statusPending   = "pending"
	statusRunning   = "running"
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
)

// statusOffline is that of a worker which takes nothing.
const statusOffline = "offline"

// shutdownMessage is what TrainForge's workers say of a job that they cancel.
const shutdownMessage = "Worker shutdown during execution"

// Bounds of what a peer may send.
const (
	maxBody       = 10 << 20  // bytes of a JSON body
	maxResults    = 500 << 20 // bytes of results_zip
	maxConfig     = 256 << 10 // bytes of the field config
	maxID         = 200       // bytes of an id
	maxLogLines   = 10_000    // in one batch
	maxLogLine    = 1 << 20   // bytes
	maxMessage    = 2_000     // bytes of a status' message
	maxStep       = 200       // bytes of what a task does now
	maxListed     = 1_000     // jobs in one list
	maxWorkerGPUs = 64        // of one worker
)

// resultLimits are the most of what results may unpack to.
var resultLimits = archive.Limits{Files: 10_000, Bytes: 4 * maxResults} //nolint:gochecknoglobals // constants

// formatTime is a time as TrainForge writes it, "" for none.
func formatTime(t muster.Time) string {
	if t == 0 {
		return ""
	}
	return t.Std().Format(lenient.NaiveTime)
}

// gpu is one device of worker A.
type gpu struct {
	ID       int     `json:"gpu_id"`
	Name     string  `json:"name"`
	MemoryMB float64 `json:"memory_mb"`
}

// nodeInfo is what worker A says of its machine.
type nodeInfo struct {
	WorkerID string  `json:"worker_id"`
	Hostname string  `json:"hostname"`
	Platform string  `json:"platform"`
	Python   string  `json:"python_version"`
	CPUs     int     `json:"cpu_count"`
	MemoryGB float64 `json:"memory_total_gb"`
	DiskGB   float64 `json:"disk_total_gb"`
	GPUs     []gpu   `json:"gpus"`
}

// capabilities are those of workers A and C.
type capabilities struct {
	MaxJobs     int     `json:"max_concurrent_jobs,omitempty"`
	CPUs        float64 `json:"cpu_count,omitempty"` // of bridges; workers A and C do not say it here
	GPUCount    int     `json:"gpu_count"`
	MaxMemoryGB float64 `json:"max_memory_gb"`
	GPUInfo     struct {
		Available bool    `json:"available"`
		Name      string  `json:"name,omitempty"`
		MemoryGB  float64 `json:"memory_gb,omitempty"`
	} `json:"gpu_info"`
}

// registration is the body of POST /api/workers/register of A (WorkerInfo) and of C (the others).
type registration struct {
	WorkerInfo   *nodeInfo    `json:"worker_info,omitempty"`
	WorkerID     string       `json:"worker_id,omitempty"`
	Status       string       `json:"status,omitempty"`
	WorkerType   string       `json:"worker_type,omitempty"`
	Location     string       `json:"location,omitempty"`
	GPUName      string       `json:"gpu_name,omitempty"`
	GPUMemoryGB  float64      `json:"gpu_memory_gb,omitempty"`
	Platform     string       `json:"platform,omitempty"`      // of the worker for Kaggle, which says no capabilities
	GPUAvailable bool         `json:"gpu_available,omitempty"` // the same
	Capabilities capabilities `json:"capabilities"`
}

// heartbeat is the body of a heartbeat of A (all but CurrentJob) or of C (Timestamp, CurrentJob).
type heartbeat struct {
	WorkerID    string  `json:"worker_id,omitempty"`
	Timestamp   float64 `json:"timestamp"`
	MemoryUsage float64 `json:"memory_usage,omitempty"`
	CurrentJob  string  `json:"current_job_id,omitempty"`
	CPU         struct {
		Utilization float64 `json:"utilization_percent"`
		Metrics     struct {
			CPU    float64 `json:"cpu_usage_percent"`
			Memory float64 `json:"memory_usage_percent"`
		} `json:"current_metrics"`
	} `json:"cpu_status"`
}

func (b *heartbeat) sender() string { return b.WorkerID }

// nodeStatus is a job-status of worker A.
type nodeStatus struct {
	WorkerID  string `json:"worker_id"`
	JobID     string `json:"job_id"`
	Status    string `json:"status"`
	ExitCodes []*int `json:"exit_codes,omitempty"`
}

func (s *nodeStatus) sender() string { return s.WorkerID }

// update is the body of PUT /api/jobs/{id} and PUT /api/jobs/{id}/status.
type update struct {
	Status      string   `json:"status,omitempty"`
	Message     string   `json:"message,omitempty"`
	Progress    *float64 `json:"progress,omitempty"` // 0 to 100
	Error       string   `json:"error_message,omitempty"`
	StartedAt   string   `json:"started_at,omitempty"`
	CompletedAt string   `json:"completed_at,omitempty"`
	WorkerNode  string   `json:"worker_node,omitempty"`
}

// workerEvent is a report of worker C about itself.
type workerEvent struct {
	Status string `json:"status"`
}

// workerProgress is the body of PUT /api/workers/{id}/progress.
type workerProgress struct {
	Progress *float64 `json:"progress"`
	Message  string   `json:"message"`
	Epoch    *float64 `json:"epoch"`
	Loss     *float64 `json:"loss"`
	Accuracy *float64 `json:"accuracy"`
}

// logEntry is one line of a log. Its timestamp is an epoch or a text, and is only shown.
type logEntry struct {
	Message   string `json:"message"`
	Timestamp any    `json:"timestamp,omitempty"`
}

// logBatch is the body of POST /api/jobs/{id}/logs/batch.
type logBatch struct {
	Logs []logEntry `json:"logs"`
}

// claimRequest is the body of POST /api/jobs/{id}/claim and of POST /api/workers/unregister.
type claimRequest struct {
	WorkerID string `json:"worker_id"`
}

func (c *claimRequest) sender() string { return c.WorkerID }

// dist is a member's place in a distributed job.
type dist struct {
	Rank       int    `json:"rank"`
	WorldSize  int    `json:"world_size"`
	MasterAddr string `json:"master_addr"`
	MasterPort int    `json:"master_port"`
}

func (d *dist) check() error {
	if d.WorldSize < 1 || d.WorldSize > muster.MaxGangSize || d.Rank < 0 || d.Rank >= d.WorldSize ||
		d.MasterAddr == "" || len(d.MasterAddr) > 255 || strings.ContainsAny(d.MasterAddr, " \t\r\n\x00") || strings.HasPrefix(d.MasterAddr, "-") ||
		d.MasterPort < 1 || d.MasterPort > 65535 {
		return muster.Errorf(muster.Invalid, "invalid place in the distributed job: rank %d of %d at port %d", d.Rank, d.WorldSize, d.MasterPort)
	}
	return nil
}

type claimAnswer struct {
	Success     bool   `json:"success"`
	Message     string `json:"message"`
	JobID       string `json:"job_id"`
	WorkerID    string `json:"worker_id"`
	Distributed bool   `json:"is_distributed,omitempty"`
	Dist        *dist  `json:"dist_config,omitempty"`
}

// resources are those of a job. Nil means that they were not given.
type resources struct {
	GPU    *amount    `json:"gpu,omitempty"`
	CPU    *amount    `json:"cpu,omitempty"`
	Memory memorySize `json:"memory,omitempty"`
}

// amount is a number. TrainForge's tools write true for "a GPU" and false for none, and people write texts.
type amount struct {
	number float64
	guess  bool // it was true: a tool writes that where it finds the name of a library such as torch
}

func newAmount(n float64) *amount { return &amount{number: n} }

// MarshalJSON writes the number.
func (a amount) MarshalJSON() ([]byte, error) { return json.Marshal(a.number) }

// UnmarshalJSON reads a number, a text with one, or a boolean.
func (a *amount) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*a = amount{}
	switch v := v.(type) {
	case float64:
		a.number = v
	case bool:
		if a.guess = v; v {
			a.number = 1
		}
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil {
			return muster.Errorf(muster.Invalid, "%q is not a number", lenient.Text(v, 40))
		}
		a.number = n
	default:
		return muster.Errorf(muster.Invalid, "the amount of a resource is not a number")
	}
	return nil
}

// memorySize is a size as Kubernetes writes it, such as "4Gi"; a bare number means bytes.
type memorySize string

// UnmarshalJSON reads a text or a number.
func (m *memorySize) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		*m = memorySize(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(b, &number); err != nil {
		return muster.Errorf(muster.Invalid, "resources.memory is neither a text such as \"4Gi\" nor a number")
	}
	*m = memorySize(number)
	return nil
}

// bytes returns the size, 0 for none.
func (m memorySize) bytes() (muster.Size, error) {
	s := strings.TrimSpace(string(m))
	if s == "" {
		return 0, nil
	}
	for _, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if strings.HasSuffix(s, unit) {
			s += "B"
		}
	}
	size, err := muster.ParseSize(s)
	if err != nil || size > 1<<50 {
		return 0, muster.Errorf(muster.Invalid, "resources.memory %q is not a size: write one such as \"4Gi\"", lenient.Text(s, 40))
	}
	return size, nil
}

// isDefault reports whether these are what TrainForge's server and its tools write into every job. Only worker A obeys them.
func (r *resources) isDefault() bool {
	if r.GPU == nil || r.GPU.number != 1 {
		return false
	}
	return r.CPU == nil && r.Memory == "" || r.CPU != nil && r.CPU.number == 2 && r.Memory == "4Gi"
}

// request returns what the resources ask for. What they ask for by default, or by a guess of TrainForge's tools, is one GPU where a worker has one, as
// gpus says, and nothing else.
func (r *resources) request(gpus bool) (muster.Request, error) {
	if r.isDefault() {
		var q muster.Request
		if gpus {
			q.GPUs.Count = 1
		}
		return q, nil
	}
	q, err := r.written()
	if gpus && r.GPU != nil && r.GPU.guess {
		q.GPUs.Count = 1
	}
	return q, err
}

// written returns what is written, without a GPU by a guess.
func (r *resources) written() (muster.Request, error) {
	var q muster.Request
	if r.GPU != nil && !r.GPU.guess {
		n := r.GPU.number
		if !(n >= 0 && n <= 1024) || n != math.Trunc(n) {
			return q, muster.Errorf(muster.Invalid, "resources.gpu is not a number of GPUs")
		}
		q.GPUs.Count = int(n)
	}
	if r.CPU != nil {
		if !(r.CPU.number >= 0 && r.CPU.number <= 10_000) {
			return q, muster.Errorf(muster.Invalid, "resources.cpu is not a number of cores")
		}
		q.CPUs = math.Round(r.CPU.number*1000) / 1000
	}
	var err error
	q.Memory, err = r.Memory.bytes()
	return q, err
}

// config is trainforge.yaml as JSON.
type config struct {
	Project struct {
		Name string `json:"name"`
	} `json:"project"`
	Training struct {
		Script       string `json:"script,omitempty"`
		Requirements string `json:"requirements,omitempty"`
	} `json:"training"`
	Resources   resources `json:"resources"`
	Environment struct {
		BaseImage string `json:"base_image,omitempty"`
	} `json:"environment"`
}

// job is a job as lists, details and pending lists show it.
type job struct {
	ID          string          `json:"job_id"`
	MongoID     string          `json:"_id,omitempty"`
	Project     string          `json:"project_name"`
	Script      string          `json:"training_script"`
	Status      string          `json:"status"`
	Progress    float64         `json:"progress"`
	Resources   resources       `json:"resources"`
	Config      json.RawMessage `json:"config,omitempty"`
	Error       string          `json:"error_message,omitempty"`
	WorkerNode  string          `json:"worker_node,omitempty"`
	Duration    *float64        `json:"duration,omitempty"`
	CreatedAt   string          `json:"created_at,omitempty"`
	UpdatedAt   string          `json:"updated_at,omitempty"`
	StartedAt   string          `json:"started_at,omitempty"`
	CompletedAt string          `json:"completed_at,omitempty"`
	Distributed bool            `json:"is_distributed,omitempty"`
	NumWorkers  int             `json:"num_workers,omitempty"`
	Allocated   []string        `json:"allocated_workers,omitempty"`
	Training    *training       `json:"training,omitempty"` // where worker A looks for the program
	MusterJob   muster.JobID    `json:"muster_job,omitempty"`
}

type jobAnswer struct {
	Success bool   `json:"success"`
	Message string `json:"message,omitempty"`
	job
}

type training struct {
	Script string `json:"script"`
}

// id is the job's id, whichever field has it.
func (j *job) id() string { return cmp.Or(j.ID, j.MongoID) }

// jobList is the answer to GET /api/jobs.
type jobList struct {
	Success bool  `json:"success"`
	Jobs    []job `json:"jobs"`
	Count   int   `json:"count"`
}

var wireStatuses = map[muster.JobState]string{ //nolint:gochecknoglobals // a constant table
	muster.JobWaiting: statusPending, muster.JobQueued: statusPending, muster.JobRunning: statusRunning,
	muster.JobSucceeded: statusCompleted, muster.JobCancelled: statusCancelled,
}

func wireStatus(s muster.JobState) string { return cmp.Or(wireStatuses[s], statusFailed) }

// checkID returns an error for what cannot be an id.
func checkID(field, id string) error {
	if id == "" {
		return muster.Errorf(muster.Invalid, "%s is required", field)
	}
	if len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' }) {
		return muster.Errorf(muster.Invalid, "%s is not an id: at most %d bytes without / and control characters", field, maxID)
	}
	return nil
}

// isID reports whether a text can be an id.
func isID(id string) bool { return checkID("id", id) == nil }

// isPlaceholder reports whether these are the two devices that worker A lists on a machine without any.
func isPlaceholder(gpus []gpu) bool {
	return len(gpus) == 2 && gpus[0] == gpu{0, "NVIDIA GeForce RTX 3080", 10240} && gpus[1] == gpu{1, "NVIDIA GeForce RTX 3090", 24576}
}
