package muster

import "encoding/json"

// WorkerState is where a worker stands.
type WorkerState string

// The worker states. Only an active worker is given new tasks.
const (
	WorkerActive      WorkerState = "active"
	WorkerPaused      WorkerState = "paused"      // keeps its tasks, takes no new ones
	WorkerDraining    WorkerState = "draining"    // the same, and leaves when the last one ended
	WorkerUnreachable WorkerState = "unreachable" // silent; its leases still run
	WorkerGone        WorkerState = "gone"        // left, or all its leases ended
)

// Worker is one worker as stored and as the API shows it.
type Worker struct {
	ID                  WorkerID          `json:"id"`
	Name                string            `json:"name"`
	State               WorkerState       `json:"state"`
	Version             string            `json:"version,omitempty"`
	Tags                []string          `json:"tags,omitempty"`
	Labels              map[string]string `json:"labels,omitempty"`
	Kinds               []string          `json:"kinds,omitempty"`
	CustomKinds         json.RawMessage   `json:"-"`               // definitions of kinds that its owner added: a list of kind.Kind; see package catalog
	Price               float64           `json:"price,omitempty"` // per hour
	Resources           Resources         `json:"resources"`
	Free                *Resources        `json:"free,omitempty"`
	Running             int               `json:"running"`
	Tasks               []TaskID          `json:"tasks,omitempty"` // up to 100 of those that it holds; only where one worker is asked for
	Load                *Load             `json:"load,omitempty"`
	Constrained         string            `json:"constrained,omitempty"` // why it takes nothing new of its own accord
	Health              *WorkerHealth     `json:"health,omitempty"`      // nil if attempts have ended there as they should lately
	Allow               *Allow            `json:"allow,omitempty"`       // what its owner lets tasks have; nil means all
	UnsupportedFeatures []string          `json:"lacks,omitempty"`       // of SpecFeatures and RunFeatures, what it cannot carry out
	Projects            []string          `json:"projects,omitempty"`    // whose tasks it takes; none means all
	Address             string            `json:"address,omitempty"`     // at which other workers reach it
	Deadline            Time              `json:"deadline,omitzero"`     // when a drain stops what still runs, or a pause ends
	Paused              bool              `json:"paused,omitempty"`      // by an administrator; kept while it is away, whatever its state
	Draining            bool              `json:"draining,omitempty"`    // the same
	JoinedAt            Time              `json:"joined_at,omitzero"`
	LastSeenAt          Time              `json:"last_seen_at,omitzero"`
}

// WorkerHealth says how attempts failed on a worker lately through no fault of their own. It
// is kept in the server's memory only.
type WorkerHealth struct {
	Score   float64   `json:"score"`             // 1 is well; each failure halves it, and successes and time bring it back
	Reason  Reason    `json:"reason"`            // of the last failure
	Attempt AttemptID `json:"attempt"`           // that failed last
	Avoided string    `json:"avoided,omitempty"` // why the server gives it no task now; "" if it does
	Until   Time      `json:"until,omitzero"`    // when it is given a task again
}

// Load is what a worker's host was doing at its last heartbeat.
type Load struct {
	CPU    float64   `json:"cpu"`    // share of all cores in use, 0 to 1
	Memory Size      `json:"memory"` // in use, bytes
	Disk   *DiskLoad `json:"disk,omitempty"`
	GPUs   []GPULoad `json:"gpus,omitempty"`
}

// DiskLoad is how full the disk under a worker's data dir is.
type DiskLoad struct {
	Free  Size `json:"free"` // bytes that the worker may still write
	Total Size `json:"total"`
	Low   bool `json:"low,omitempty"` // little more is free than what makes the worker take no new tasks
}

// GPULoad is one reading of a device. What the device does not tell is absent.
type GPULoad struct {
	UUID        string   `json:"uuid"`
	Utilization *float64 `json:"utilization,omitempty"` // share of the time in which it computed, 0 to 1
	Memory      *Size    `json:"memory,omitempty"`      // in use, bytes
	Temperature *float64 `json:"temperature,omitempty"` // degrees Celsius
	Power       *float64 `json:"power,omitempty"`       // watts
	Latency     *float64 `json:"latency,omitempty"`     // seconds from when the device was asked to when the reading was known
}

// AdminRequest is what an administrator asks of a worker.
type AdminRequest struct {
	Action  AdminAction
	Timeout *Duration // how long until a drain stops what still runs, or a pause ends; nil means never
	GPUs    []string  // to heal, by UUID or index; empty means all that are quarantined
}

// AdminAction is what an administrator does to a worker.
type AdminAction string

// The steerings.
const (
	ActionPause  AdminAction = "pause"  // give it nothing new
	ActionResume AdminAction = "resume" // take a pause or a drain back
	ActionDrain  AdminAction = "drain"  // let it finish what it has, then leave
	ActionRemove AdminAction = "remove" // forget it; it must be away
	ActionHeal   AdminAction = "heal"   // look at its quarantined GPUs again, and release those that are well
)
