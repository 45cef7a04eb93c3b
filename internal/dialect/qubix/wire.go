package qubix

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// The most bytes of a body. Reports have a job's result, which is at most muster.MaxResultSize, beside lines of output.
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

// The words of a worker for how a job ended.
const (
	reportCompleted = "completed"
	reportFailed    = "failed"
)

// The types of jobs that QUBIX's own workers know.
const (
	typeScript   = "custom_script"
	typeTraining = "training"
	typeTuning   = "fine-tuning"
	typeCustom   = "custom" // of a job that names none
)

// registration is the body of POST /api/providers/register.
type registration struct {
	WorkerID     string   `json:"worker_id"`
	WorkerIDs    string   `json:"workerId,omitempty"` // as some clients write it
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

	// Of Muster's bridge only; other workers and backends do not know them.
	Software string   `json:"software,omitempty"` // muster and its version
	Kinds    []string `json:"kinds,omitempty"`    // that it really runs, by Muster's names
	Slots    int      `json:"slots,omitempty"`    // tasks at once
}

// quickRegistration is the body of POST /api/providers/quick-register.
type quickRegistration struct {
	Type         string    `json:"type"` // browser or native
	WorkerID     string    `json:"workerId"`
	QubicAddress string    `json:"qubicAddress"`
	GPU          quickGPU  `json:"gpu"`
	CPU          *quickCPU `json:"cpu,omitempty"`
	RAM          *quickRAM `json:"ram,omitempty"`
	Location     string    `json:"location,omitempty"`
	PricePerHour *float64  `json:"pricePerHour,omitempty"`
}

type quickGPU struct {
	Type     string  `json:"type"` // webgpu, webgl or native
	Model    string  `json:"model,omitempty"`
	Vendor   string  `json:"vendor,omitempty"`
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

// usage is what a heartbeat tells of the host. What is not measured is absent, and nil.
type usage struct {
	CPU          *float64 `json:"cpuPercent,omitempty"`
	RAM          *float64 `json:"ramPercent,omitempty"`
	RAMUsed      *float64 `json:"ramUsedGb,omitempty"` // of the simple worker only
	RAMTotal     *float64 `json:"ramTotalGb,omitempty"`
	GPU          *float64 `json:"gpuPercent,omitempty"`
	GPUTemp      *float64 `json:"gpuTemp,omitempty"`
	GPUMemory    *float64 `json:"gpuMemoryPercent,omitempty"`
	GPUMemUsed   *float64 `json:"gpuMemUsedMb,omitempty"`
	GPUMemTotal  *float64 `json:"gpuMemTotalMb,omitempty"`
	GPUPower     *float64 `json:"gpuPowerDraw,omitempty"`
	GPUPowerMost *float64 `json:"gpuPowerLimit,omitempty"`
	Timestamp    string   `json:"timestamp,omitempty"`

	// As the TS backend takes them, too.
	CPUSnake *float64 `json:"cpu_percent,omitempty"`
	RAMSnake *float64 `json:"ram_percent,omitempty"`
	GPUSnake *float64 `json:"gpu_percent,omitempty"`
}

// isSimple reports whether the simple worker sent it: only that one tells the memory in gigabytes.
func (u *usage) isSimple() bool { return u.RAMUsed != nil || u.RAMTotal != nil }

// hasGPU reports whether a GPU was measured.
func (u *usage) hasGPU() bool {
	return u.GPU != nil || u.GPUTemp != nil || u.GPUMemTotal != nil || u.GPUSnake != nil
}

// job is a job as workers are given it and clients are shown it.
type job struct {
	ID                string          `json:"id"`
	UserID            string          `json:"userId,omitempty"`
	ProviderID        *string         `json:"providerId"`
	JobType           *string         `json:"jobType,omitempty"` // a worker takes modelType where the key is missing, and fails where it is null
	Framework         string          `json:"framework,omitempty"`
	FileName          string          `json:"fileName,omitempty"`
	FileURL           string          `json:"fileUrl,omitempty"`
	ModelType         string          `json:"modelType,omitempty"`
	ComputeNeeded     *float64        `json:"computeNeeded"` // a simple worker fails where it is null
	InputData         json.RawMessage `json:"inputData,omitempty"`
	RequiredVRAM      *float64        `json:"requiredVRAM,omitempty"`
	RequiredCompute   *float64        `json:"requiredCompute,omitempty"`
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

	// Of Muster's gateway for Muster's bridge only: what the stage says beside its kind and input.
	Muster json.RawMessage `json:"muster,omitempty"`
}

// kind is the type as the enhanced worker finds it, in lower case.
func (j *job) kind() string {
	if j.JobType != nil && *j.JobType != "" {
		return strings.ToLower(strings.TrimSpace(*j.JobType))
	}
	return strings.ToLower(strings.TrimSpace(orDefault(j.ModelType, typeCustom)))
}

// progress is the body of POST /api/jobs/{id}/progress. Our bridge names the worker in both ways: the mock server reads worker_id.
type progress struct {
	WorkerID         string          `json:"workerId"`
	WorkerIDSnake    string          `json:"worker_id,omitempty"`
	Progress         *float64        `json:"progress"`
	CurrentOperation *string         `json:"currentOperation,omitempty"`
	Metrics          json.RawMessage `json:"metrics,omitempty"`
	LogLines         []logLine       `json:"logLines,omitempty"`
	Timestamp        string          `json:"timestamp,omitempty"`
}

// logLine is an object, or a text that is its Message.
type logLine struct {
	Level     string `json:"level,omitempty"`
	Message   string `json:"message"`
	Timestamp string `json:"timestamp,omitempty"`
}

// UnmarshalJSON reads either form.
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
	JobAnalysis    json.RawMessage `json:"jobAnalysis"`
	AdvancedConfig json.RawMessage `json:"advancedConfig"`
	RequiredVRAM   *float64        `json:"requiredVRAM"`
	RequiredRAM    *float64        `json:"requiredRAM"`
	Script         string          `json:"script"` // as analyses have it
}

// checkPercent refuses what is no progress.
func checkPercent(v *float64) (float64, error) {
	if v == nil {
		return 0, muster.Errorf(muster.Invalid, "progress is missing: send a number from 0 to 100")
	}
	if math.IsNaN(*v) || *v < 0 || *v > 100 {
		return 0, muster.Errorf(muster.Invalid, "progress is %v: it must be from 0 to 100", *v)
	}
	return *v, nil
}

// checkID refuses an id that is missing or could be read as something else where it is shown.
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

// sanitize makes text from outside fit for a name or a label: no control characters, at most so many bytes.
func sanitize(s string, maxBytes int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) <= maxBytes {
		return s
	}
	s = s[:maxBytes]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// validOrZero returns v if it is a number from 0 to most, and else 0: workers invent what they cannot measure.
func validOrZero(v, limit float64) float64 {
	if math.IsNaN(v) || v < 0 || v > limit {
		return 0
	}
	return v
}

func orDefault(s, fallback string) string {
	if strings.TrimSpace(s) == "" {
		return fallback
	}
	return s
}

// formatTime is a time as JavaScript writes it; "" for none.
func formatTime(t muster.Time) *string {
	if t == 0 {
		return nil
	}
	s := t.String()
	return &s
}

// formatNaive is a time as QUBIX's workers write it: of UTC, without saying so.
func formatNaive(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000") }

// jsonObject returns the fields of a JSON object: none for what is no object.
func jsonObject(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// textField returns a field that is a JSON text, else "".
func textField(m map[string]json.RawMessage, key string) string {
	var s string
	if json.Unmarshal(m[key], &s) != nil {
		return ""
	}
	return s
}

// mustMarshal writes what always can be written.
func mustMarshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("qubix: %v", err)) // of our own types only
	}
	return b
}
