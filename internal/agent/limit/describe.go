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

// DynamicUser is said of tasks that each have a user of their own.
const DynamicUser = "dynamic"

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
	User        string   `json:"user,omitempty"` // whom tasks run as: DynamicUser, a name, or "" for the worker's own user
	Processes   Way      `json:"processes"`      // that tasks do not see those of others, and their command lines
	NoNetwork   Way      `json:"no_network"`     // network: none
}

// Describe finds out how tasks would be held, and changes nothing. Of cfg it
// takes Data, TaskUser, Sandbox, Read and Write.
func Describe(cfg Config) Description {
	version, controllers, why := cgroup.Describe()
	d := Description{
		Cgroups: version, Controllers: controllers, Landlock: landlock.ABI(), User: cfg.TaskUser,
		CPUs: Way{By: ByNothing}, Memory: Way{By: ByWatch}, PIDs: Way{By: ByWatch},
		Disk: Way{By: ByWatch, Why: "no quota is set on the file system"},
	}
	t, err := cfg.tenant(cfg.reachable(commonPaths(&cfg)))
	if err != nil {
		t = &tenant{} // Check says so
	}
	switch {
	case t.super != nil:
		d.User = Superuser
	case t.own():
		d.User = DynamicUser
	}
	if t.super == nil && os.Geteuid() == 0 {
		d.PIDs.By = ByRlimit
	}
	d.Processes = Way{By: ByKernel}
	switch {
	case t.noView != nil:
		d.Processes = Way{ByNothing, t.noView.Error()}
	case t.view == nil:
		d.Processes = Way{ByNothing, "the worker is not run by root"}
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
	d.sandbox(cfg, t)
	d.NoNetwork = Way{By: ByKernel}
	if err := tryNetwork(); err != nil {
		d.NoNetwork = Way{By: ByNothing, Why: err.Error()}
	}
	return d
}

// sandbox describes what keeps tasks from what is not theirs.
func (d *Description) sandbox(cfg Config, t *tenant) {
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
	switch {
	case d.Signals.By != ByNothing:
	case t.own():
		d.Signals = Way{By: ByKernel, Why: "by the users of tasks"}
	case t.named != nil:
		d.Signals = Way{ByKernel, "by the user of tasks; they can reach one another"}
	}
	if t.super != nil && none == "" {
		d.Files.Why = strings.TrimPrefix(d.Files.Why+"; tasks run as root: named sockets of root's, such as a container engine's, are open to them ("+t.super.Error()+")", "; ")
	}
}
