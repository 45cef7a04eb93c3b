package limit

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/limit/cgroup"
	"github.com/muster-dev/muster/internal/agent/limit/landlock"
)

// How a limit is kept.
const (
	ByKernel  = "kernel"  // it cannot be gone over
	ByRlimit  = "rlimit"  // by the kernel, for all processes of a user together
	ByWatch   = "watched" // a task that goes over it is ended soon after
	ByNothing = "no"
)

// Way is how something is kept, and why not better.
type Way struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// Description is how a worker of this machine can hold its tasks.
type Description struct {
	Cgroups     string   `json:"cgroups"`               // v1, v2, hybrid or none
	Controllers []string `json:"controllers,omitempty"` // that can be used
	CPUs        Way      `json:"cpus"`
	Memory      Way      `json:"memory"`
	PIDs        Way      `json:"pids"`
	Disk        Way      `json:"disk"`
	Files       Way      `json:"files"`          // what a task may open
	Signals     Way      `json:"signals"`        // that tasks cannot send to others
	Devices     Way      `json:"devices"`        // that tasks without GPUs cannot open GPUs
	Landlock    int      `json:"landlock"`       // version, 0 for none
	User        string   `json:"user,omitempty"` // whom tasks run as, if not as the worker
	NoNetwork   Way      `json:"no_network"`     // network: none
}

// Describe finds out how tasks would be held, and changes nothing. Of cfg it
// takes TaskUser and Sandbox.
func Describe(cfg Config) Description {
	version, controllers, why := cgroup.Describe()
	d := Description{
		Cgroups: version, Controllers: controllers, Landlock: landlock.ABI(), User: cfg.TaskUser,
		CPUs: Way{By: ByNothing}, Memory: Way{By: ByWatch}, PIDs: Way{By: ByWatch},
		Disk: Way{By: ByWatch, Why: "no quota is set on the file system"},
	}
	if cfg.TaskUser != "" {
		d.PIDs.By = ByRlimit
	}
	for name, way := range map[string]*Way{"cpu": &d.CPUs, "memory": &d.Memory, "pids": &d.PIDs} {
		switch {
		case slices.Contains(d.Controllers, name):
			*way = Way{By: ByKernel}
		case why[name] != "":
			way.Why = why[name]
		default:
			way.Why = "no control groups with the controller " + name + " are mounted"
		}
	}
	d.sandbox(cfg)
	d.NoNetwork = Way{By: ByKernel}
	if err := tryNetwork(); err != nil {
		d.NoNetwork = Way{By: ByNothing, Why: err.Error()}
	}
	return d
}

// sandbox describes what keeps tasks from what is not theirs.
func (d *Description) sandbox(cfg Config) {
	d.Files, d.Signals, d.Devices = Way{By: ByKernel}, Way{By: ByKernel}, Way{By: ByKernel}
	none := ""
	switch {
	case cfg.Sandbox == Off:
		none = "--sandbox is off"
	case runtime.GOOS != "linux":
		none = "this system has no Landlock"
	case d.Landlock == 0:
		none = "this kernel has no Landlock, or it is off: Linux 5.13 or newer with lsm=landlock"
	}
	switch {
	case none != "":
		d.Files, d.Signals, d.Devices = Way{ByNothing, none}, Way{ByNothing, none}, Way{ByNothing, none}
	case d.Landlock < landlock.StrictABI:
		d.Signals = Way{ByNothing, fmt.Sprintf("Landlock has version %d here, and knows signals from 6 on (Linux 6.12)", d.Landlock)}
	}
	if none == "" && d.Landlock < landlock.TruncateABI {
		d.Files.Why = fmt.Sprintf("Landlock has version %d here: what a task may see it may also cut off, if its user may (Linux 6.2 or newer)", d.Landlock)
	}
	if cfg.TaskUser != "" && d.Signals.By == ByNothing {
		d.Signals = Way{ByKernel, "by the user of tasks; they can reach one another"}
	}
	if cfg.TaskUser == "" && os.Geteuid() == 0 && none == "" {
		d.Files.Why = strings.TrimPrefix(d.Files.Why+"; tasks run as root: named sockets of root's, such as a container engine's, are open to them; give --task-user", "; ")
	}
}
