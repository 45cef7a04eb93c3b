package isolation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
)

// DynamicUser is the Description.User of tasks that each have a user of their own.
const DynamicUser = "dynamic"

// How a limit is enforced.
const (
	ByKernel  = "kernel"  // it cannot be exceeded
	ByRlimit  = "rlimit"  // by the kernel, for all processes of a user together
	ByWatch   = "watched" // a task that exceeds it is stopped soon after
	ByNothing = "no"
)

// Enforcement is how something is enforced, and why not better.
type Enforcement struct {
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

// Description is how a worker of this machine can isolate its tasks.
type Description struct {
	Cgroups     string      `json:"cgroups"`               // v1, v2, hybrid or none
	Controllers []string    `json:"controllers,omitempty"` // usable ones
	CPUs        Enforcement `json:"cpus"`
	Memory      Enforcement `json:"memory"`
	PIDs        Enforcement `json:"pids"`
	Disk        Enforcement `json:"disk"`
	Files       Enforcement `json:"files"`          // tasks open only their own files
	Signals     Enforcement `json:"signals"`        // tasks cannot signal other processes
	Devices     Enforcement `json:"devices"`        // tasks without GPUs cannot open GPUs
	Landlock    int         `json:"landlock"`       // version, 0 for none
	User        string      `json:"user,omitempty"` // of tasks: DynamicUser, a name, or "" for the worker's own user
	Processes   Enforcement `json:"processes"`      // tasks cannot see processes of others and their command lines
	IPC         Enforcement `json:"ipc"`            // tasks cannot see shared memory of others, and leave none behind
	NoNetwork   Enforcement `json:"no_network"`     // network: none
	Syscalls    Enforcement `json:"syscalls"`       // tasks cannot use the system calls that container engines deny
}

// Describe returns how tasks would be isolated, and changes nothing. It uses Data, TaskUser, Sandbox, Read and Write of cfg.
func Describe(cfg Config) Description {
	version, controllers, why := cgroup.Describe()
	d := Description{
		Cgroups: version, Controllers: controllers, Landlock: landlock.ABI(), User: cfg.TaskUser,
		CPUs: Enforcement{By: ByNothing}, Memory: Enforcement{By: ByWatch}, PIDs: Enforcement{By: ByWatch},
		Disk: Enforcement{By: ByWatch, Why: "no quota is set on the file system"},
	}
	ra, err := cfg.runAs(cfg.exposedPaths(cfg.paths(false)))
	if err != nil {
		ra = &runAs{ipcErr: err} // Check reports it
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
		d.Processes = Enforcement{ByNothing, errNotRoot.Error()}
	}
	d.IPC = Enforcement{By: ByKernel}
	if ra.ipcErr != nil {
		d.IPC = Enforcement{ByNothing, ra.ipcErr.Error()}
	}
	for name, enforcement := range map[string]*Enforcement{"cpu": &d.CPUs, "memory": &d.Memory, "pids": &d.PIDs} {
		switch {
		case slices.Contains(d.Controllers, name):
			*enforcement = Enforcement{By: ByKernel}
		case why[name] != "":
			enforcement.Why = why[name]
		default:
			enforcement.Why = "no control group with the controller " + name + " is mounted"
		}
	}
	d.describeSandbox(cfg, ra)
	d.Syscalls = Enforcement{By: ByKernel}
	switch err := cfg.unfiltered(); {
	case err != nil:
		d.Syscalls = Enforcement{ByNothing, err.Error()}
	case version != "v1" && len(controllers) > 0 && (ra.view == nil || !view.NoUserNamespaces(ra.view)):
		d.Syscalls.Why = "tasks can create user namespaces: their control groups need clone3, and the worker has no privileges to prevent it otherwise"
	}
	d.NoNetwork = Enforcement{By: ByKernel}
	if err := tryNetwork(); err != nil {
		d.NoNetwork = Enforcement{By: ByNothing, Why: err.Error()}
	}
	return d
}

// describeSandbox describes how the sandbox protects what is not the task's.
func (d *Description) describeSandbox(cfg Config, ra *runAs) {
	d.Files, d.Signals, d.Devices = Enforcement{By: ByKernel}, Enforcement{By: ByKernel}, Enforcement{By: ByKernel}
	reason := ""
	switch {
	case cfg.Sandbox == Off:
		reason = "--sandbox is off"
	case runtime.GOOS != "linux":
		reason = "this system has no Landlock"
	case d.Landlock == 0:
		reason = "this kernel has no Landlock, or it is disabled: use Linux 5.13 or newer with lsm=landlock"
	}
	switch {
	case reason != "":
		d.Files, d.Signals, d.Devices = Enforcement{ByNothing, reason}, Enforcement{ByNothing, reason}, Enforcement{ByNothing, reason}
	case d.Landlock < landlock.StrictABI:
		d.Signals = Enforcement{ByNothing, fmt.Sprintf("this kernel has version %d of Landlock; signals need version 6 (Linux 6.12)", d.Landlock)}
	}
	if reason == "" && d.Landlock < landlock.TruncateABI {
		d.Files.Why = fmt.Sprintf("this kernel has version %d of Landlock: a task can truncate files that it can read, if its user may write them (fixed in Linux 6.2)", d.Landlock)
	}
	switch {
	case d.Signals.By != ByNothing:
	case ra.perAttempt():
		d.Signals = Enforcement{By: ByKernel, Why: "by the users of tasks"}
	case ra.named != nil:
		d.Signals = Enforcement{ByKernel, "by the user of tasks; tasks can signal one another"}
	}
	sockets := ""
	switch {
	case reason != "":
	case ra.rootReason != nil:
		sockets = "tasks run as root: they can use named sockets of root, such as that of a container engine (" + ra.rootReason.Error() + ")"
	case !ra.perAttempt():
		sockets = "tasks run as one user: they can use its named sockets, such as those of a session bus or an SSH agent, or of a container engine that it may use"
	}
	if sockets != "" {
		d.Files.Why = strings.TrimPrefix(d.Files.Why+"; "+sockets, "; ")
	}
}
