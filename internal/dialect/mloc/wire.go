package mloc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Defaults of hosts and workers.
const (
	DefaultAddress = ":8000"
	DefaultRedis   = "redis://localhost:6379/0"
	DefaultTopic   = "tasks"
)

// Keys and channels in Redis.
const (
	KeyWorkers   = "workers:ids"              // set of worker ids
	KeyElastic   = "workers:elastic_disabled" // set of worker ids that are given nothing
	TopicTasks   = "tasks.events"             // task events, worker → host
	TopicWorkers = "workers.events"           // worker events, worker → host
)

// WorkerKey is the hash of a worker's facts.
func WorkerKey(id string) string { return "worker:" + id }

// HeartbeatKey is the key that expires when a worker's heartbeats stop.
func HeartbeatKey(id string) string { return "worker:" + id + ":hb" }

// The statuses of a worker. A host gives a task only to one that is exactly IDLE.
const (
	StatusStarting = "STARTING"
	StatusIdle     = "IDLE"
	StatusRunning  = "RUNNING"
)

// The states of a task.
const (
	StatePending    = "PENDING"
	StateDispatched = "DISPATCHED"
	StateDone       = "DONE"
	StateFailed     = "FAILED"
)

// The types of events.
const (
	EventStarted    = "TASK_STARTED"
	EventSucceeded  = "TASK_SUCCEEDED"
	EventFailed     = "TASK_FAILED"
	EventRegister   = "REGISTER"
	EventStatus     = "STATUS"
	EventHeartbeat  = "HEARTBEAT"
	EventUnregister = "UNREGISTER"
)

// Bounds of what a peer may send.
const (
	MaxMessage = 8 << 20   // bytes of a message on a channel, and of a YAML document
	MaxResult  = 16 << 20  // bytes of a posted result
	MaxFile    = 64 << 30  // bytes of a posted file
	MaxID      = 128       // bytes of an id
	maxDepth   = 100       // nesting of JSON and YAML
	MaxText    = 64 << 10  // bytes of an error or another text of an event that is kept
	maxHash    = 256 << 10 // bytes of a worker's hash
)

// Object is a JSON object whose numbers are json.Number, so that what Muster passes on stays as it was written.
type Object = map[string]any

// Document is one task as users write it: apiVersion mloc/v1. Only the shape is fixed.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   Object `json:"metadata"`
	Spec       Object `json:"spec"`
}

// TaskType returns spec.taskType of a task, "" if there is none.
func TaskType(d Document) string { return Text(d.Spec["taskType"]) }

// Child is a task that was merged into another one: the worker answers it beside its parent.
type Child struct {
	TaskID   string `json:"task_id"`
	Spec     Object `json:"spec"`
	Metadata Object `json:"metadata"`
}

// TaskMessage is what the host publishes on the channel of tasks. Only the assigned worker acts on it.
type TaskMessage struct {
	TaskID         string   `json:"task_id"`
	Task           Document `json:"task"`
	TaskType       string   `json:"task_type"`
	AssignedWorker string   `json:"assigned_worker"`
	DispatchedAt   string   `json:"dispatched_at"`
	ParentTaskID   *string  `json:"parent_task_id"`
	MergedChildren []Child  `json:"merged_children,omitempty"`
}

// TaskEvent is what a worker says about a task.
type TaskEvent struct {
	Type     string  `json:"type"`
	TS       string  `json:"ts"`
	WorkerID string  `json:"worker_id"`
	TaskID   string  `json:"task_id"`
	Status   *string `json:"status"`
	Error    *string `json:"error"`
	Payload  Object  `json:"payload"`
}

// WorkerEvent is what a worker says about itself.
type WorkerEvent struct {
	Type     string   `json:"type"`
	TS       string   `json:"ts"`
	WorkerID string   `json:"worker_id"`
	Status   *string  `json:"status"`
	Tags     []string `json:"tags"`
	Metrics  Object   `json:"metrics"`
	Payload  Object   `json:"payload"`
}

// Hardware is a worker's hardware_json.
type Hardware struct {
	CPU struct {
		LogicalCores int    `json:"logical_cores"`
		Model        string `json:"model"`
	} `json:"cpu"`
	Memory struct {
		TotalBytes int64 `json:"total_bytes"`
	} `json:"memory"`
	GPU struct {
		DriverVersion *string     `json:"driver_version"`
		CUDAVersion   *string     `json:"cuda_version"`
		GPUs          []GPUDevice `json:"gpus"`
	} `json:"gpu"`
	Network struct {
		IP        string   `json:"ip"`
		Bandwidth *float64 `json:"bandwidth_bytes_per_sec,omitempty"`
	} `json:"network"`
}

// GPUDevice is one GPU of a worker.
type GPUDevice struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Memory int64  `json:"memory_total_bytes"`
}

// WorkerHash is the hash of a worker: all fields are texts in Redis.
type WorkerHash struct {
	WorkerID      string
	Status        string
	StartedAt     string
	LastSeen      string
	PID           int
	Env           Object
	Hardware      Hardware
	Tags          []string
	CostPerHour   float64
	CacheModels   []string // the host writes these three
	CacheDatasets []string
	CacheUpdated  string
}

// Fields returns the hash that a worker writes when it registers.
func (h WorkerHash) Fields() map[string]string {
	return map[string]string{
		"worker_id": h.WorkerID, "status": h.Status, "started_at": h.StartedAt, "last_seen": h.LastSeen,
		"pid": strconv.Itoa(h.PID), "env_json": EncodeString(NonNilObject(h.Env)), "hardware_json": EncodeString(h.Hardware),
		"tags_json": EncodeString(NonNilList(h.Tags)), "cost_per_hour": FormatPythonFloat(h.CostPerHour),
	}
}

// ParseHash reads a worker's hash. Fields that cannot be read count as absent: they are another program's. It fails
// if there is no worker_id, as in what the heartbeats of a worker leave behind after Redis was flushed, and if the
// whole is larger than it could sensibly be.
func ParseHash(fields map[string]string) (WorkerHash, error) {
	size := 0
	for k, v := range fields {
		size += len(k) + len(v)
	}
	if size > maxHash {
		return WorkerHash{}, muster.Errorf(muster.TooLarge, "a worker's hash has %d bytes: at most %d are read", size, maxHash)
	}
	h := WorkerHash{
		WorkerID: fields["worker_id"], Status: fields["status"], StartedAt: fields["started_at"], LastSeen: fields["last_seen"],
		CacheUpdated: fields["cache_updated_ts"], CostPerHour: 1,
	}
	if h.WorkerID == "" {
		return h, muster.Errorf(muster.NotFound, "the worker's hash has no worker_id: it was removed, and the worker did not register again")
	}
	h.PID, _ = strconv.Atoi(strings.TrimSpace(fields["pid"]))
	if f, err := strconv.ParseFloat(strings.TrimSpace(fields["cost_per_hour"]), 64); err == nil && f >= 0 && f < 1e12 {
		h.CostPerHour = f
	}
	for name, into := range map[string]any{"env_json": &h.Env, "hardware_json": &h.Hardware, "tags_json": &h.Tags, "cache_models_json": &h.CacheModels, "cache_datasets_json": &h.CacheDatasets} {
		if s := fields[name]; s != "" {
			_ = Decode([]byte(s), maxHash, into) // what another program wrote wrongly counts as absent
		}
	}
	return h, nil
}

// Delivery is what a worker posts as the result of a task.
type Delivery struct {
	TaskID   string
	WorkerID string // "" if it does not say
	Result   Object
	Metadata Object // may be nil
}

// FormatTime writes a time as both sides do: RFC 3339 with microseconds and +00:00.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// Decode reads one JSON value of at most max bytes and maxDepth levels. Numbers in what is decoded into any stay
// as they are written.
func Decode(b []byte, limit int, dst any) error {
	if len(b) > limit {
		return muster.Errorf(muster.TooLarge, "a JSON text of %d bytes: at most %d are read", len(b), limit)
	}
	if tooDeep(b) {
		return muster.Errorf(muster.Invalid, "a JSON text is nested deeper than %d levels", maxDepth)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(dst); err != nil {
		return muster.Errorf(muster.Invalid, "unexpected JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return muster.Errorf(muster.Invalid, "there is more after the JSON value")
	}
	return nil
}

// IsTypeError reports whether decode failed only because of a value's type: the rest was read.
func IsTypeError(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// tooDeep reports whether a JSON text opens more than maxDepth levels.
func tooDeep(b []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Encode writes JSON as the other side does: no escapes but the necessary ones.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot write JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// EncodeString is encode for values that can always be written.
func EncodeString(v any) string {
	b, err := Encode(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// ParseEvent reads a message of one of the channels of events: exactly one of both is set. As the host does it, types
// are made upper case, those that begin with TASK are of tasks and need a task_id, and unknown fields are allowed.
// A field beside type and ids whose type is not the expected one counts as absent, so that the news itself is not lost.
func ParseEvent(b []byte, now time.Time) (*TaskEvent, *WorkerEvent, error) {
	var t TaskEvent
	var w WorkerEvent
	for _, e := range []any{&t, &w} {
		if err := Decode(b, MaxMessage, e); err != nil && !IsTypeError(err) {
			return nil, nil, err
		}
	}
	t.Type, t.TS = strings.ToUpper(strings.TrimSpace(t.Type)), cmp.Or(t.TS, FormatTime(now))
	w.Type, w.TS = t.Type, t.TS
	switch {
	case t.Type == "":
		return nil, nil, muster.Errorf(muster.Invalid, "an event has no type")
	case t.WorkerID == "" || len(t.WorkerID) > MaxID:
		return nil, nil, muster.Errorf(muster.Invalid, "an event %s has no worker_id, or one of more than %d bytes", Truncate(t.Type, 64), MaxID)
	case !strings.HasPrefix(t.Type, "TASK"):
		return nil, &w, nil
	case t.TaskID == "" || len(t.TaskID) > MaxID:
		return nil, nil, muster.Errorf(muster.Invalid, "an event %s has no task_id", Truncate(t.Type, 64))
	}
	if t.Error != nil {
		*t.Error = Truncate(*t.Error, MaxText)
	}
	return &t, nil, nil
}

// ValidID says whether a foreign id may be used: it becomes the name of a folder and part of keys.
func ValidID(id string) bool {
	return id != "" && len(id) <= MaxID && !strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == '\\' || r == 0xfffd }) && id != "." && id != ".."
}

var unsafeInID = lazyregexp.New("[^A-Za-z0-9_-]")

// SafeID is the name of a task's folder: all but letters, digits, - and _ become _.
func SafeID(id string) string { return unsafeInID.Get().ReplaceAllString(id, "_") }

// ValidFileName says whether a name may be that of a file: a bare name, as the host demands it.
func ValidFileName(name string) bool {
	return ValidID(name) && !strings.HasPrefix(name, ".") && name == strings.TrimSpace(name) && muster.CheckArtifactName(name) == nil
}

// Truncate shortens a text to at most n bytes, at a rune.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(s[:n], "")
}

// AllTexts reports whether a list has nothing but strings.
func AllTexts(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, ok := v.(string); return !ok })
}

// Text returns v if it is a string.
func Text(v any) string { s, _ := v.(string); return s }

// Lookup returns the object at a path of keys, nil if there is none.
func Lookup(o Object, path ...string) Object {
	for _, key := range path {
		o, _ = o[key].(Object)
	}
	return o
}

// At returns the value at a path such as "items.0.output", nil if there is none.
func At(v any, path string) any {
	for part := range strings.SplitSeq(path, ".") {
		if part == "" {
			continue
		}
		switch in := v.(type) {
		case Object:
			v = in[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// LocalIP is an IPv4 address at which other machines reach this one, or its loopback.
func LocalIP() string {
	addrs, _ := net.InterfaceAddrs() // without any it is this machine
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// NonNilObject returns o, an empty one if it is nil.
func NonNilObject(o Object) Object {
	if o == nil {
		return Object{}
	}
	return o
}

// NonNilList returns l, an empty one if it is nil.
func NonNilList[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// FormatPythonFloat writes a number as Python's str(float) does for usual ones: 1.0 and not 1.
func FormatPythonFloat(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
