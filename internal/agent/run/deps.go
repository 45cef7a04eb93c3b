package run

import (
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// What Env's limits are if it names none.
const (
	DefaultLogCap  = 64 << 20 // bytes of one attempt's log
	DefaultLogRate = 16 << 20 // bytes a second, after a burst of LogBurst
	LogBurst       = 4 << 20
)

// Deps is what the executors of one worker share. It is not changed after the first
// executor was made of it.
type Deps struct {
	Dir              string // the worker's data dir: tasks/, checkpoints/, envs/ and tools/ lie in it
	Transfer         Transfer
	Logs             Logs
	Log              *slog.Logger
	LogCap           int64 // bytes of one attempt's log, then it is cut; 0 means DefaultLogCap
	LogRate          int64 // bytes a second that a task may print; 0 means DefaultLogRate
	AllowPrivateURLs bool  // scripts may be fetched from private addresses, and through the proxy of the environment
	Supervisor       Supervisor
	Isolator         Isolator        // nil: tasks are not confined
	GPUs             DeviceAllocator // nil: nobody looks after them, and tasks see all
	Meter            Meter           // nil: nothing is measured while tasks run
	Checkpoints      CheckpointStore // nil: checkpoints stay on this worker
	Containers       Containers      // nil: this worker runs none
	Path             string          // where tasks find programs, as a PATH; "" means the worker's own
	Runtimes         Runtimes        // nil: this worker makes none
	ModelPool        ModelPool       // nil: no models are kept loaded between tasks
	UV               string          // the uv program; "": $MUSTER_UV, the PATH, or fetched once into Dir
}

// Now is the current time as reports carry it.
func Now() muster.Time { return muster.NewTime(time.Now()) }
