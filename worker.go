package muster

import "encoding/json"

// WorkerState is the state of a worker.
type WorkerState string

// The worker states. Only an active worker gets new tasks.
const (
	WorkerPending     WorkerState = "pending" // waits for an administrator's approval
	WorkerActive      WorkerState = "active"
	WorkerPaused      WorkerState = "paused"      // keeps its tasks, gets no new ones
	WorkerDraining    WorkerState = "draining"    // gets no new tasks, and leaves when the last one has ended
	WorkerUnreachable WorkerState = "unreachable" // no session; its leases may still hold
	WorkerGone        WorkerState = "gone"        // left, or all its leases expired
)

// Worker is the state of a worker, as stored and as the API returns it.
type Worker struct {
	ID                  WorkerID          `json:"id"`
	Name                string            `json:"name"`
	State               WorkerState       `json:"state"`
	Version             string            `json:"version,omitempty"`
	Tags                []string          `json:"tags,omitempty"`
	Labels              map[string]string `json:"labels,omitempty"`
	Kinds               []string          `json:"kinds,omitempty"`
	CustomKinds         json.RawMessage   `json:"-"`               // custom kinds: a list of kind.Kind; see package catalog
	Price               float64           `json:"price,omitempty"` // per hour
	Resources           Resources         `json:"resources"`
	Free                *Resources        `json:"free,omitempty"`
	Running             int               `json:"running"`
	Tasks               []TaskID          `json:"tasks,omitempty"` // up to 100 of its tasks; only if a single worker is requested
	Load                *Load             `json:"load,omitempty"`
	Constrained         string            `json:"constrained,omitempty"` // why the worker itself accepts no new tasks
	Health              *WorkerHealth     `json:"health,omitempty"`      // nil if no recent attempts failed by its fault
	Allow               *Allow            `json:"allow,omitempty"`       // limits for tasks; nil means none
	UnsupportedFeatures []string          `json:"lacks,omitempty"`       // of SpecFeatures and RunFeatures
	Projects            []string          `json:"projects,omitempty"`    // that it accepts tasks of; empty means all
	Heartbeat           Duration          `json:"heartbeat,omitempty"`   // interval that it asked for; 0 means the server's
	Address             string            `json:"address,omitempty"`     // for connections from other workers
	Token               string            `json:"token,omitempty"`       // id of the key by which it joined
	Pending             bool              `json:"pending,omitempty"`     // until an administrator approves it; kept in any state
	Quarantined         string            `json:"quarantined,omitempty"` // why its identity is not accepted; "" if it is
	Deadline            Time              `json:"deadline,omitzero"`     // when a drain stops running tasks, or a pause ends
	Paused              bool              `json:"paused,omitempty"`      // by an administrator; kept in any state
	Draining            bool              `json:"draining,omitempty"`    // the same
	JoinedAt            Time              `json:"joined_at,omitzero"`
	LastSeenAt          Time              `json:"last_seen_at,omitzero"`
}

// Offer is what a worker's machine offers, as the worker reports it. The fields are those of Worker.
type Offer struct {
	Tags      []string        `json:"tags,omitempty"`
	Kinds     []string        `json:"kinds"`
	Resources Resources       `json:"resources"`
	OwnKinds  json.RawMessage `json:"own_kinds,omitempty"` // Worker.CustomKinds
	Allow     *Allow          `json:"allow,omitempty"`
	Lacks     []string        `json:"lacks,omitempty"` // Worker.UnsupportedFeatures
	Projects  []string        `json:"projects,omitempty"`
}

// WorkerHealth rates a worker by recent attempts that failed by its fault. It is kept in
// the server's memory only.
type WorkerHealth struct {
	Score   float64   `json:"score"`             // 1 is healthy; each failure halves it, successes and time restore it
	Reason  Reason    `json:"reason"`            // of the last failure
	Attempt AttemptID `json:"attempt"`           // of the last failure
	Avoided string    `json:"avoided,omitempty"` // why the server assigns no tasks to it; "" if it does
	Until   Time      `json:"until,omitzero"`    // when it gets tasks again
}

// Load is the load of a worker's host at its last heartbeat.
type Load struct {
	CPU    float64   `json:"cpu"`    // share of all cores in use, 0 to 1
	Memory Size      `json:"memory"` // in use, bytes
	Disk   *DiskLoad `json:"disk,omitempty"`
	GPUs   []GPULoad `json:"gpus,omitempty"`
}

// DiskLoad is the usage of the disk with a worker's data directory.
type DiskLoad struct {
	Free  Size `json:"free"` // bytes available to the worker
	Total Size `json:"total"`
	Low   bool `json:"low,omitempty"` // close to the limit below which the worker accepts no tasks
}

// GPULoad is one reading of a device. Fields that the device does not report are absent.
type GPULoad struct {
	UUID        string   `json:"uuid"`
	Utilization *float64 `json:"utilization,omitempty"` // share of the time in use, 0 to 1
	Memory      *Size    `json:"memory,omitempty"`      // in use, bytes
	Temperature *float64 `json:"temperature,omitempty"` // degrees Celsius
	Power       *float64 `json:"power,omitempty"`       // watts
	Latency     *float64 `json:"latency,omitempty"`     // duration of the reading, seconds
}

// AdminRequest is an administrator's request to a worker.
type AdminRequest struct {
	Action  AdminAction
	Timeout *Duration // until a drain stops running tasks, or a pause ends; nil means never
	GPUs    []string  // to heal, by UUID or index; empty means all quarantined ones
}

// AdminAction is an action on a worker.
type AdminAction string

// The actions.
const (
	ActionPause   AdminAction = "pause"   // assign no new tasks
	ActionResume  AdminAction = "resume"  // end a pause or a drain
	ActionDrain   AdminAction = "drain"   // finish its tasks, then leave
	ActionRemove  AdminAction = "remove"  // delete it; it must be unreachable or gone
	ActionHeal    AdminAction = "heal"    // check its quarantined GPUs and release the healthy ones
	ActionApprove AdminAction = "approve" // let a pending worker take tasks
)
