package muster

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
	ID         WorkerID          `json:"id"`
	Name       string            `json:"name"`
	State      WorkerState       `json:"state"`
	Version    string            `json:"version,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Kinds      []string          `json:"kinds,omitempty"`
	Price      float64           `json:"price,omitempty"` // per hour
	Resources  Resources         `json:"resources"`
	Free       *Resources        `json:"free,omitempty"`
	Running    int               `json:"running"`
	Load       *Load             `json:"load,omitempty"`
	Paused     bool              `json:"-"` // by an administrator; outlasts reconnects
	Draining   bool              `json:"-"`
	JoinedAt   Time              `json:"joined_at,omitzero"`
	LastSeenAt Time              `json:"last_seen_at,omitzero"`
}

// Load is what a worker's host was doing at its last heartbeat.
type Load struct {
	CPU    float64 `json:"cpu"`    // share of all cores in use, 0 to 1
	Memory Size    `json:"memory"` // in use, bytes
}

// Steering is what an administrator does to a worker.
type Steering string

// The steerings.
const (
	SteerPause  Steering = "pause"  // give it nothing new
	SteerResume Steering = "resume" // take a pause or a drain back
	SteerDrain  Steering = "drain"  // let it finish what it has, then leave
	SteerRemove Steering = "remove" // forget it; it must be away
)
