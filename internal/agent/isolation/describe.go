package isolation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
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

// Enforcement is how something is kept, and why not better.
type Enforcement struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// Description is how a worker of this machine can hold its tasks.
type Description struct {
	Cgroups     string      `json:"cgroups"`               // v1, v2, hybrid or none
	Controllers []string    `json:"controllers,omitempty"` // that can be used
	CPUs        Enforcement `json:"cpus"`
	Memory      Enforcement `json:"memory"`
	PIDs        Enforcement `json:"pids"`
	Disk        Enforcement `json:"disk"`
	Files       Enforcement `json:"files"`          // what a task may open
	Signals     Enforcement `json:"signals"`        // that tasks cannot send to others
	Devices     Enforcement `json:"devices"`        // that tasks without GPUs cannot open GPUs
	Landlock    int         `json:"landlock"`       // version, 0 for none
	User        string      `json:"user,omitempty"` // whom tasks run as: DynamicUser, a name, or "" for the worker's own user
	Processes   Enforcement `json:"processes"`      // that tasks do not see those of others, and their command lines
	NoNetwork   Enforcement `json:"no_network"`     // network: none
}

// Describe finds out how tasks would be held, and changes nothing. Of cfg it
// takes Data, TaskUser, Sandbox, Read and Write.
func Describe(cfg Config) Description {
	version, controllers, why := cgroup.Describe()
	d := Description{
		Cgroups: version, Controllers: controllers, Landlock: landlock.ABI(), User: cfg.TaskUser,
		CPUs: Enforcement{By: ByNothing}, Memory: Enforcement{By: ByWatch}, PIDs: Enforcement{By: ByWatch},
		Disk: Enforcement{By: ByWatch, Why: "no quota is set on the file system"},
	}
	ra, err := cfg.runAs(cfg.exposedPaths(commonPaths(&cfg)))
	if err != nil {
		ra = &runAs{} // Check says so
	}
	switch {
	case ra.rootReason != nil:
		d.User = RootUser
	case ra.perAttempt():
		d.User = DynamicUser
	}
	if ra.rootReason == nil && os.Geteuid() == 0 {
		d.PIDs.By = ByRlimit
	}
	d.Processes = Enforcement{By: ByKernel}
	switch {
	case ra.viewErr != nil:
		d.Processes = Enforcement{ByNothing, ra.viewErr.Error()}
	case ra.view == nil:
		d.Processes = Enforcement{ByNothing, "the worker is not run by root"}
	}
	for name, enforcement := range map[string]*Enforcement{"cpu": &d.CPUs, "memory": &d.Memory, "pids": &d.PIDs} {
		switch {
		case slices.Contains(d.Controllers, name):
			*enforcement = Enforcement{By: ByKernel}
		case why[name] != "":
			enforcement.Why = why[name]
		default:
			enforcement.Why = "no control groups with the controller " + name + " are mounted"
		}
	}
	d.describeSandbox(cfg, ra)
	d.NoNetwork = Enforcement{By: ByKernel}
	if err := tryNetwork(); err != nil {
		d.NoNetwork = Enforcement{By: ByNothing, Why: err.Error()}
	}
	return d
}

// describeSandbox describes what keeps tasks from what is not theirs.
func (d *Description) describeSandbox(cfg Config, ra *runAs) {
	d.Files, d.Signals, d.Devices = Enforcement{By: ByKernel}, Enforcement{By: ByKernel}, Enforcement{By: ByKernel}
	reason := ""
	switch {
	case cfg.Sandbox == Off:
		reason = "--sandbox is off"
	case runtime.GOOS != "linux":
		reason = "this system has no Landlock"
	case d.Landlock == 0:
		reason = "this kernel has no Landlock, or it is off: Linux 5.13 or newer with lsm=landlock"
	}
	switch {
	case reason != "":
		d.Files, d.Signals, d.Devices = Enforcement{ByNothing, reason}, Enforcement{ByNothing, reason}, Enforcement{ByNothing, reason}
	case d.Landlock < landlock.StrictABI:
		d.Signals = Enforcement{ByNothing, fmt.Sprintf("Landlock has version %d here, and knows signals from 6 on (Linux 6.12)", d.Landlock)}
	}
	if reason == "" && d.Landlock < landlock.TruncateABI {
		d.Files.Why = fmt.Sprintf("Landlock has version %d here: what a task may see it may also cut off, if its user may (Linux 6.2 or newer)", d.Landlock)
	}
	switch {
	case d.Signals.By != ByNothing:
	case ra.perAttempt():
		d.Signals = Enforcement{By: ByKernel, Why: "by the users of tasks"}
	case ra.named != nil:
		d.Signals = Enforcement{ByKernel, "by the user of tasks; they can reach one another"}
	}
	if ra.rootReason != nil && reason == "" {
		d.Files.Why = strings.TrimPrefix(d.Files.Why+"; tasks run as root: named sockets of root's, such as a container engine's, are open to them ("+ra.rootReason.Error()+")", "; ")
	}
}
