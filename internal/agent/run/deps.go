package run

import (
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// Defaults of Deps.
const (
	DefaultLogCap  = 64 << 20 // bytes of one attempt's log
	DefaultLogRate = 16 << 20 // bytes per second, after a burst of LogBurst
	LogBurst       = 4 << 20
)

// Deps is what the executors of one worker share. It is not changed after the first executor was created with it.
type Deps struct {
	Dir              string // the worker's data dir: it has tasks/, checkpoints/, envs/, locks/ and tools/
	Transfer         Transfer
	Logs             Logs
	Log              *slog.Logger
	LogCap           int64 // bytes of one attempt's log, then it is truncated; 0 means DefaultLogCap
	LogRate          int64 // bytes per second that a task may print; 0 means DefaultLogRate
	AllowPrivateURLs bool  // scripts may be fetched from private addresses, and through the proxy of the environment
	Supervisor       Supervisor
	Isolator         Isolator        // nil: tasks are not isolated
	GPUs             DeviceAllocator // nil: GPUs are not managed, and tasks see all of them
	Meter            Meter           // nil: tasks are not measured
	Checkpoints      CheckpointStore // nil: checkpoints stay on this worker
	Containers       Containers      // nil: this worker does not run containers
	Path             string          // the PATH of tasks; "" means the worker's own
	Runtimes         Runtimes        // nil: this worker has none
	ModelPool        ModelPool       // nil: no models are kept loaded between tasks
	UV               string          // the uv program; "": $MUSTER_UV, from the PATH, or downloaded once into Dir
}

// Notify puts a token into c, which has a capacity of 1, unless it holds one.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Now is the current time in the form of reports.
func Now() muster.Time { return muster.NewTime(time.Now()) }
