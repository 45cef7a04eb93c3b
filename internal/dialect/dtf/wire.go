package dtf

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Types of messages. Workers send the first four.
const (
	typeAuth       = "auth"
	typeRegister   = "register"
	typeHeartbeat  = "heartbeat"
	typeTaskResult = "task_result"

	typeAuthResponse      = "auth_response"
	typeRegisterResponse  = "register_response"
	typeHeartbeatResponse = "heartbeat_response"
	typeResultResponse    = "task_result_response"
	typeExecute           = "execute_task"
	typeExecuteBatch      = "execute_task_batch"
	typeCancel            = "cancel_task"
	typeCancelBatch       = "cancel_task_batch"
	typeError             = "error"
)

// Types of tasks.
const (
	taskBenchmark = "benchmark"
	taskTest      = "test"
	taskCustom    = "custom"
	taskHash      = "hash"
)

// Statuses of messages and of tasks.
const (
	statusPending    = "pending"
	statusRunning    = "running"
	statusCompleted  = "completed"
	statusFailed     = "failed"
	statusCancelling = "cancelling"
	statusCancelled  = "cancelled"
	statusSuccess    = "success"
	statusError      = "error"
)

// Bounds of messages.
const (
	maxID    = 256 // bytes of an id of a worker or task
	maxBatch = 1000
)

// message is a message of any type and direction.
type message struct {
	Type     string `json:"type"`
	WorkerID string `json:"worker_id,omitempty"`

	// auth and its answer
	AuthType string `json:"auth_type,omitempty"`
	APIKey   string `json:"api_key,omitempty"`
	Token    string `json:"token,omitempty"`

	// register
	Hostname     string        `json:"hostname,omitempty"`
	Capabilities *capabilities `json:"capabilities,omitempty"`

	// heartbeat
	Metrics   *metrics    `json:"hardware_metrics,omitempty"` // of task_result, too
	Health    *health     `json:"health_status,omitempty"`
	Task      *taskStatus `json:"task_status,omitempty"`
	Cancelled *taskNotice `json:"task_cancelled,omitempty"`

	// task_result, execute_task, cancel_task
	TaskID   string          `json:"task_id,omitempty"`
	TaskType string          `json:"task_type,omitempty"`
	Config   json.RawMessage `json:"config,omitempty"`
	Seconds  *float64        `json:"execution_time_seconds,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Reason   string          `json:"reason,omitempty"`

	Tasks   []wireTask `json:"tasks,omitempty"`
	TaskIDs []string   `json:"task_ids,omitempty"`

	// answers
	Status    string `json:"status,omitempty"` // of task_result, too
	Message   string `json:"message,omitempty"`
	Received  *bool  `json:"received,omitempty"`
	Timestamp any    `json:"timestamp,omitempty"` // seconds, or ISO 8601
	Signature string `json:"signature,omitempty"`
}

// wireTask is a task of execute_task_batch.
type wireTask struct {
	TaskID   string          `json:"task_id"`
	TaskType string          `json:"task_type"`
	Config   json.RawMessage `json:"config"`
}

type taskStatus struct {
	TaskID   string  `json:"task_id"`
	Status   string  `json:"status"`
	Progress float64 `json:"progress"` // percent
}

// taskNotice reports that a worker has cancelled a task.
type taskNotice struct {
	TaskID    string `json:"task_id"`
	Reason    string `json:"reason"`
	Timestamp any    `json:"timestamp,omitempty"`
}

type metrics struct {
	CPUPercent        float64     `json:"cpu_percent"`
	MemoryPercent     float64     `json:"memory_percent"`
	MemoryUsedGB      float64     `json:"memory_used_gb"`
	MemoryAvailableGB float64     `json:"memory_available_gb"`
	GPU               []gpuMetric `json:"gpu,omitempty"`
}

type gpuMetric struct {
	Index             int     `json:"index"`
	MemoryAllocatedGB float64 `json:"memory_allocated_gb"`
	MemoryReservedGB  float64 `json:"memory_reserved_gb"`
	MemoryTotalGB     float64 `json:"memory_total_gb"`
	MemoryUtilization float64 `json:"memory_utilization_percent"`
}

type health struct {
	Healthy  *bool          `json:"is_healthy,omitempty"`
	Metrics  *healthMetrics `json:"health_metrics,omitempty"`
	Recovery *recovery      `json:"recovery_status,omitempty"`
}

type healthMetrics struct {
	Healthy           bool     `json:"is_healthy"`
	ResourceHealthy   *bool    `json:"resource_healthy,omitempty"`
	ConnectionHealthy bool     `json:"connection_healthy"`
	CPUPercent        *float64 `json:"cpu_percent,omitempty"`
	MemoryPercent     *float64 `json:"memory_percent,omitempty"`
	CurrentTask       *string  `json:"current_task"`
	CheckTime         string   `json:"check_time"`
}

type recovery struct {
	Needed  bool `json:"needs_recovery"`
	Auto    bool `json:"auto_recovery_enabled"`
	Attempt any  `json:"last_recovery_attempt"`
}

// capabilities describes a worker. Muster's bridge adds the field Muster.
type capabilities struct {
	Hostname string              `json:"hostname,omitempty"`
	Platform string              `json:"platform,omitempty"`
	Hardware []string            `json:"hardware,omitempty"` // cpu, cuda, rocm, mps, openvino
	CPU      cpu                 `json:"cpu"`
	Memory   memory              `json:"memory"`
	GPU      gpus                `json:"gpu,omitzero"`
	WebNN    feature             `json:"webnn"`
	WebGPU   feature             `json:"webgpu"`
	Tags     []string            `json:"tags,omitempty"`
	Muster   *musterCapabilities `json:"muster,omitempty"`
}

type feature struct {
	Available bool `json:"available"`
}

type cpu struct {
	Model   string  `json:"model"`
	Cores   float64 `json:"cores"`
	Threads float64 `json:"threads"`
	MHz     float64 `json:"freq_mhz"`
}

type memory struct {
	TotalGB     float64 `json:"total_gb"`
	AvailableGB float64 `json:"available_gb"`
}

type gpus struct {
	Count       int     `json:"count"`
	Devices     []gpu   `json:"devices,omitempty"`
	Name        string  `json:"name,omitempty"`
	MemoryGB    float64 `json:"memory_gb,omitempty"`
	CUDACompute float64 `json:"cuda_compute,omitempty"`
}

type gpu struct {
	Index    int     `json:"index"`
	Name     string  `json:"name"`
	MemoryGB float64 `json:"memory_gb"`
}

// musterCapabilities describes a bridge of Muster.
type musterCapabilities struct {
	Version string   `json:"version,omitempty"`
	Cancel  bool     `json:"cancel,omitempty"` // it implements cancel_task
	Tasks   int      `json:"max_tasks,omitempty"`
	Types   []string `json:"task_types,omitempty"` // that it does not simulate
}

// decode decodes a message. It also returns the value that the signature covers.
func decode(raw []byte) (*message, value, error) {
	v, err := parse(raw)
	if err != nil {
		return nil, value{}, err
	}
	if v.kind != 'o' {
		return nil, value{}, muster.Errorf(muster.Invalid, "a message must be a JSON object")
	}
	m := new(message)
	if err := json.Unmarshal(v.strict(), m); err != nil {
		return nil, value{}, muster.Errorf(muster.Invalid, "a field has the wrong type: %w", err)
	}
	if m.Type == "" {
		return nil, value{}, muster.Errorf(muster.Invalid, "a message needs a type")
	}
	for field, id := range map[string]string{"worker_id": m.WorkerID, "task_id": m.TaskID} {
		if err := checkID(field, id); err != nil {
			return nil, value{}, err
		}
	}
	if len(m.Tasks) > maxBatch {
		return nil, value{}, muster.Errorf(muster.Invalid, "a batch has more than %d tasks", maxBatch)
	}
	for i := range m.Tasks {
		if err := checkID("task_id", m.Tasks[i].TaskID); err != nil {
			return nil, value{}, err
		}
	}
	return m, v, nil
}

// checkID checks an id; "" is valid.
func checkID(field, id string) error {
	if len(id) > maxID {
		return muster.Errorf(muster.Invalid, "%s has more than %d bytes", field, maxID)
	}
	if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) {
		return muster.Errorf(muster.Invalid, "%s has a control character or invalid UTF-8", field)
	}
	return nil
}
