package qubix

import (
	"encoding/json"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/lenient"
)

// Maximum sizes of bodies. Reports contain a result of at most muster.MaxResultSize and lines of output.
const (
	maxSmallBody  = 256 << 10 // registrations, heartbeats
	maxReportBody = 4 << 20   // progress, completions, jobs that are created
)

const (
	maxText   = 200 // bytes of a name or a label
	maxOffers = 5   // jobs in one answer, as of QUBIX's own backend
)

// The states of a job.
const (
	statusPending   = "PENDING"
	statusAssigned  = "ASSIGNED"
	statusRunning   = "RUNNING"
	statusCompleted = "COMPLETED"
	statusFailed    = "FAILED"
	statusCancelled = "CANCELLED"
)

// The statuses of a final report.
const (
	reportCompleted = "completed"
	reportFailed    = "failed"
)

// The types of jobs that QUBIX's own workers know.
const (
	typeScript   = "custom_script"
	typeTraining = "training"
	typeTuning   = "fine-tuning"
	typeCustom   = "custom" // of a job without a type
)

// registration is the body of POST /api/providers/register.
type registration struct {
	WorkerID     string   `json:"worker_id"`
	WorkerIDs    string   `json:"workerId,omitempty"` // from some clients
	Name         string   `json:"name"`
	Address      string   `json:"address,omitempty"`
	Specs        specs    `json:"specs"`
	Location     string   `json:"location,omitempty"`
	ComputePower float64  `json:"computePower,omitempty"`
	PricePerHour *float64 `json:"pricePerHour,omitempty"`
	IsActive     *bool    `json:"isActive,omitempty"`
}

func (r *registration) id() string { return strings.TrimSpace(orDefault(r.WorkerID, r.WorkerIDs)) }

// specs is a machine as a worker describes it.
type specs struct {
	WorkerID     string  `json:"worker_id,omitempty"`
	Hostname     string  `json:"hostname,omitempty"`
	OS           string  `json:"os,omitempty"`
	CPUModel     string  `json:"cpu_model,omitempty"`
	CPUCores     float64 `json:"cpu_cores,omitempty"`
	CPUFreqGHz   float64 `json:"cpu_freq_ghz"`
	RAMTotal     float64 `json:"ram_total_gb,omitempty"`
	RAMAvailable float64 `json:"ram_available_gb,omitempty"`
	GPUAvailable bool    `json:"gpu_available"`
	GPUModel     string  `json:"gpu_model,omitempty"`
	GPUVRAM      float64 `json:"gpu_vram_gb,omitempty"`
	StorageTotal float64 `json:"storage_total_gb,omitempty"`
	StorageFree  float64 `json:"storage_free_gb,omitempty"`

	// From Muster's bridge only.
	Software string   `json:"software,omitempty"` // muster and its version
	Kinds    []string `json:"kinds,omitempty"`    // of Muster
	Slots    int      `json:"slots,omitempty"`
}

// quickRegistration is the body of POST /api/providers/quick-register.
type quickRegistration struct {
	Type         string   `json:"type"` // browser or native
	WorkerID     string   `json:"workerId"`
	QubicAddress string   `json:"qubicAddress"`
	GPU          quickGPU `json:"gpu"`
	CPU          quickCPU `json:"cpu"`
	RAM          quickRAM `json:"ram"`
	Location     string   `json:"location,omitempty"`
	PricePerHour *float64 `json:"pricePerHour,omitempty"`
}

type quickGPU struct {
	Type     string  `json:"type"` // webgpu, webgl or native
	Model    string  `json:"model,omitempty"`
	Renderer string  `json:"renderer,omitempty"`
	VRAM     float64 `json:"vram,omitempty"`
}

type quickCPU struct {
	Model string  `json:"model,omitempty"`
	Cores float64 `json:"cores,omitempty"`
}

type quickRAM struct {
	Total float64 `json:"total,omitempty"`
}

// heartbeat is the body of POST /api/providers/{id}/heartbeat.
type heartbeat struct {
	WorkerID   string  `json:"workerId"`
	Usage      usage   `json:"usage"`
	Status     string  `json:"status"`
	CurrentJob *string `json:"currentJob"`
}

// usage is the load of the host. Values that are not measured are nil.
type usage struct {
	CPU         *float64 `json:"cpuPercent,omitempty"`
	RAM         *float64 `json:"ramPercent,omitempty"`
	RAMUsed     *float64 `json:"ramUsedGb,omitempty"` // from the simple worker only
	RAMTotal    *float64 `json:"ramTotalGb,omitempty"`
	GPU         *float64 `json:"gpuPercent,omitempty"`
	GPUTemp     *float64 `json:"gpuTemp,omitempty"`
	GPUMemory   *float64 `json:"gpuMemoryPercent,omitempty"`
	GPUMemUsed  *float64 `json:"gpuMemUsedMb,omitempty"`
	GPUMemTotal *float64 `json:"gpuMemTotalMb,omitempty"`
	GPUPower    *float64 `json:"gpuPowerDraw,omitempty"`
	Timestamp   string   `json:"timestamp,omitempty"`

	// Alternative names, as in the TS backend.
	CPUSnake *float64 `json:"cpu_percent,omitempty"`
	RAMSnake *float64 `json:"ram_percent,omitempty"`
	GPUSnake *float64 `json:"gpu_percent,omitempty"`
}

// isSimple reports whether the simple worker sent it: only that one reports the memory in gigabytes.
func (u *usage) isSimple() bool { return u.RAMUsed != nil || u.RAMTotal != nil }

// hasGPU reports whether a GPU was measured.
func (u *usage) hasGPU() bool {
	return u.GPU != nil || u.GPUTemp != nil || u.GPUMemTotal != nil || u.GPUSnake != nil
}

// job is a job for workers and clients.
type job struct {
	ID                string          `json:"id"`
	UserID            string          `json:"userId,omitempty"`
	ProviderID        *string         `json:"providerId"`
	JobType           *string         `json:"jobType,omitempty"` // a worker uses modelType if it is missing, and fails if it is null
	ModelType         string          `json:"modelType,omitempty"`
	ComputeNeeded     *float64        `json:"computeNeeded"` // a simple worker fails if it is null
	InputData         json.RawMessage `json:"inputData,omitempty"`
	RequiredVRAM      *float64        `json:"requiredVRAM,omitempty"`
	RequiredRAM       *float64        `json:"requiredRAM,omitempty"`
	AdvancedConfig    json.RawMessage `json:"advancedConfig,omitempty"`
	Status            string          `json:"status,omitempty"`
	Progress          int             `json:"progress"`
	CurrentOperation  *string         `json:"currentOperation,omitempty"`
	Result            json.RawMessage `json:"result,omitempty"`
	Error             *string         `json:"error,omitempty"`
	EstimatedCost     *float64        `json:"estimatedCost,omitempty"`
	EstimatedDuration *float64        `json:"estimatedDuration,omitempty"` // seconds
	ActualCost        *float64        `json:"actualCost,omitempty"`
	ActualDuration    *float64        `json:"actualDuration,omitempty"` // seconds
	EscrowTxHash      string          `json:"escrowTxHash,omitempty"`
	CreatedAt         string          `json:"createdAt,omitempty"`
	StartedAt         *string         `json:"startedAt,omitempty"`
	CompletedAt       *string         `json:"completedAt,omitempty"`

	// From Muster's gateway to Muster's bridge only: the whole stage.
	Muster json.RawMessage `json:"muster,omitempty"`
}

// kind returns the type as the enhanced worker determines it, in lower case.
func (j *job) kind() string {
	if j.JobType != nil && *j.JobType != "" {
		return strings.ToLower(strings.TrimSpace(*j.JobType))
	}
	return strings.ToLower(strings.TrimSpace(orDefault(j.ModelType, typeCustom)))
}

// progress is the body of POST /api/jobs/{id}/progress. Muster's bridge sends both ids: the mock server reads worker_id.
type progress struct {
	WorkerID         string          `json:"workerId"`
	WorkerIDSnake    string          `json:"worker_id,omitempty"`
	Progress         *float64        `json:"progress"`
	CurrentOperation *string         `json:"currentOperation,omitempty"`
	Metrics          json.RawMessage `json:"metrics,omitempty"`
	LogLines         []logLine       `json:"logLines,omitempty"`
	Timestamp        string          `json:"timestamp,omitempty"`
}

// logLine is an object, or a string with its Message.
type logLine struct {
	Level     string `json:"level,omitempty"`
	Message   string `json:"message"`
	Timestamp string `json:"timestamp,omitempty"`
}

// UnmarshalJSON reads both forms.
func (l *logLine) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &l.Message)
	}
	type plain logLine
	return json.Unmarshal(b, (*plain)(l))
}

// gpuMetrics are those of a progress report of the enhanced worker: percent, megabytes, degrees Celsius, watts.
type gpuMetrics struct {
	Utilization *float64 `json:"gpuUtilization,omitempty"`
	MemoryUsed  *float64 `json:"gpuMemoryUsed,omitempty"`
	MemoryTotal *float64 `json:"gpuMemoryTotal,omitempty"`
	Temperature *float64 `json:"gpuTemperature,omitempty"`
	Power       *float64 `json:"powerUsage,omitempty"`
}

// completion is the body of POST /api/jobs/{id}/complete.
type completion struct {
	WorkerID      string          `json:"workerId"`
	WorkerIDSnake string          `json:"worker_id,omitempty"`
	Status        string          `json:"status"`
	Result        json.RawMessage `json:"result"`
	Error         *string         `json:"error"`
	Metrics       json.RawMessage `json:"metrics,omitempty"`
	FinalMetrics  json.RawMessage `json:"finalMetrics,omitempty"`
	Timestamp     string          `json:"timestamp,omitempty"`
}

// createRequest is the body of POST /api/jobs/create, and of /estimate and /analyze, which need less.
type createRequest struct {
	JobType        *string         `json:"jobType"`
	ModelType      string          `json:"modelType"`
	ComputeNeeded  *float64        `json:"computeNeeded"`
	InputData      json.RawMessage `json:"inputData"`
	MaxPrice       *float64        `json:"maxPrice"`
	QubicAddress   string          `json:"qubicAddress"`
	EscrowTxHash   string          `json:"escrowTxHash"`
	ProviderID     string          `json:"providerId"`
	AdvancedConfig json.RawMessage `json:"advancedConfig"`
	RequiredVRAM   *float64        `json:"requiredVRAM"`
	RequiredRAM    *float64        `json:"requiredRAM"`
	Script         string          `json:"script"` // for analyze
}

func checkID(id string) error {
	switch {
	case id == "":
		return muster.Errorf(muster.Invalid, "workerId is missing")
	case len(id) > 128:
		return muster.Errorf(muster.Invalid, "workerId has %d bytes: the most is 128", len(id))
	case strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\/%<>?#`, r) }):
		return muster.Errorf(muster.Invalid, "workerId is %.80q: it has letters, digits and . _ : - only", id)
	}
	return nil
}

func orDefault(s, fallback string) string {
	if strings.TrimSpace(s) == "" {
		return fallback
	}
	return s
}

// formatTime formats a time as JavaScript does; nil for none.
func formatTime(t muster.Time) *string {
	if t == 0 {
		return nil
	}
	return lenient.NonZero(t.String())
}
