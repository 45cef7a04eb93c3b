package run

import (
	"log/slog"
	"time"

	"github.com/muster-dev/muster"
)

// Defaults of the logs of attempts.
const (
	DefaultLogRate = 16 << 20 // bytes per second, after a burst of LogBurst
	LogBurst       = 4 << 20
)

// Deps is what all parts of a worker share that start programs.
type Deps struct {
	Dir      string // the worker's data dir, absolute: it has tasks/, checkpoints/, envs/, locks/ and tools/
	Log      *slog.Logger
	Isolator Isolator // nil: programs are not isolated
	Worker   string   // the worker's name
	Path     string   // the PATH of programs; "" means the worker's own
	UV       string   // the uv program; "": $MUSTER_UV, from the PATH, or downloaded once into Dir
}

// Now is the current time in the form of reports.
func Now() muster.Time { return muster.NewTime(time.Now()) }

// Observer is notified while something is prepared for a task. Its functions may be called concurrently.
type Observer struct {
	Step      func(step string) // the current step
	LogLine   func(line string) // a line for the task's log
	Requester string            // who requested it, in the messages of other tasks that wait for it; ""
}

// Runtime is a managed Python environment, ready for use.
type Runtime struct {
	Name       string
	Python     string   // its interpreter, absolute
	VenvDir    string   // of its virtual environment, "" for an interpreter that the operator configured
	ModuleDirs []string // folders for PYTHONPATH, with the modules of its kinds
	ReadDirs   []string // other folders that its programs read
}
