package run

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// IsolationSpec is the isolation of a task's processes: made by an Isolator on the worker, applied where the process is started, and stored
// with it.
type IsolationSpec struct {
	Cgroups         []Cgroup `json:"cgroups,omitempty"` // to be entered
	User            *User    `json:"user,omitempty"`    // to become; nil means the worker's own
	View            *View    `json:"view,omitempty"`    // what it sees of the machine, whatever its user; nil means all
	IPC             *IPC     `json:"ipc,omitempty"`     // its own shared memory, with View; nil means the machine's
	Sandbox         *Sandbox `json:"sandbox,omitempty"`
	NoNet           bool     `json:"no_net,omitempty"` // its own network, with only a loopback device
	AllowHosts      []string `json:"hosts,omitempty"`  // with NoNet: the hosts that it may reach by a proxy; see ProxyEnv
	Rlimits         []Rlimit `json:"rlimits,omitempty"`
	NoNewPrivileges bool     `json:"no_new_privileges,omitempty"`
	Seccomp         bool     `json:"seccomp,omitempty"` // without the system calls that container engines deny

	// CgroupParent is the path of Cgroups below the mount of each hierarchy, such as /muster-5e1f/17.3-2, by which an engine puts a
	// container into them. It is "" where that is not possible: their paths differ, or the worker has no cgroups here.
	CgroupParent string `json:"parent,omitempty"`

	// Limits that the kernel does not enforce here and that are watched instead; 0 for the others.
	WatchMemory muster.Size `json:"watch_memory,omitempty"`
	WatchPIDs   int         `json:"watch_pids,omitempty"`
	WatchDisk   muster.Size `json:"watch_disk,omitempty"`
}

// Cgroup is a control group of an attempt's processes.
type Cgroup struct {
	Path           string   `json:"path"`                  // absolute, of the directory
	Unified        bool     `json:"unified,omitempty"`     // of version 2
	Controllers    []string `json:"controllers,omitempty"` // that it uses, such as memory
	Shared         bool     `json:"shared,omitempty"`      // with other attempts: not to be killed or removed
	OOMKillsBefore int      `json:"before,omitempty"`      // processes in it that were killed for memory before; on the whole machine for a container in version 1
}

// User is the user that a task runs as. It has no capabilities.
type User struct {
	UID           uint32   `json:"uid"`
	GID           uint32   `json:"gid"`
	Groups        []uint32 `json:"groups,omitempty"`
	Name          string   `json:"name,omitempty"`    // in the environment
	Dynamic       bool     `json:"dynamic,omitempty"` // no other attempt has this user while this one runs
	GroupWritable bool     `json:"shares,omitempty"`  // its groups may change its files
}

// View is what a task sees of the machine, in a mount namespace that all tasks with the same view share. In every view /proc hides the
// processes that the task may not trace.
type View struct {
	Hide []string `json:"hide,omitempty"` // folders that only contain the paths in Show
	Show []string `json:"show,omitempty"` // paths in Hide

	// NoUserNamespaces means that a task cannot create user namespaces, if this process may change its root.
	NoUserNamespaces bool `json:"no_user_namespaces,omitempty"`
}

// IPC is a task's own /dev/shm, System V objects and POSIX message queues. They end with its last process.
type IPC struct {
	Size muster.Size `json:"size,omitempty"` // of its /dev/shm; 0 means half of the machine's memory
}

// Sandbox is what a task may read and change in the file system. A folder includes its files.
type Sandbox struct {
	Read  []string `json:"read"`  // may be read and executed
	Write []string `json:"write"` // may also be changed
	List  []string `json:"list"`  // folders: their entries may be listed, but not opened
}

// Rlimit is a soft and hard limit of setrlimit(2).
type Rlimit struct {
	Name  string `json:"name"` // such as nofile
	Value uint64 `json:"value"`
}

// Isolator limits the resources of tasks, and what they may access. Its methods may be called concurrently.
type Isolator interface {
	// Prepare creates the isolation of an attempt. Its own folders are chowned to the user that it runs as. A failure is a TaskError.
	Prepare(t *Task, folders Folders) (*IsolationSpec, error)
	// PrepareContainer creates the control groups of an attempt that runs in a container, whose CgroupParent they are. The Watch limits
	// apply to a container that is not in them.
	PrepareContainer(t *Task) (*IsolationSpec, error)
	// PrepareTool creates the isolation of a program of the worker that may run code that tasks chose, such as a package build: it may
	// read what tasks may, and read, and change what is in write.
	PrepareTool(read, write []string) *IsolationSpec
	// Stats returns what the kernel has counted for a task.
	Stats(c *IsolationSpec) CgroupStats
	// CurrentStats is Stats without MemoryPeak, OOMKills, LikelyOOM and PIDsDenied: it costs less.
	CurrentStats(c *IsolationSpec) CgroupStats
	// Processes lists the processes of a task. ok is false if the kernel does not group them; then they are found by their parents and
	// sessions.
	Processes(c *IsolationSpec) (pids []int, ok bool)
	// Release removes what Prepare or PrepareContainer created, once no process of the task is left.
	Release(c *IsolationSpec)
}

// DeviceAllocator gives GPUs to attempts and takes them back. Its methods may be called concurrently.
type DeviceAllocator interface {
	// Environ returns the environment entries that make the granted devices visible, and no others.
	Environ(g *muster.Grant) []string
	// Acquire records the state of the granted devices before an attempt uses them.
	Acquire(ctx context.Context, a muster.AttemptID, g *muster.Grant)
	// Release takes the devices back after the end of an attempt whose processes had envTag: it ends processes of the attempt that are
	// left on them, and quarantines devices that are not in their former state. It returns a TaskError if a device failed during the
	// attempt.
	Release(ctx context.Context, a muster.AttemptID, g *muster.Grant, envTag string) error
}

// Folders are the folders of an attempt.
type Folders struct {
	Base       string // contains all but the checkpoint
	Checkpoint string
	Runtime    string // of its Python environment, shared; "" for none

	Read  []string // other folders and files of the worker that it may read
	Write []string // folders of the worker that all tasks of a user may change
}

// CgroupStats is what the kernel counted for all processes of a task. Pointers are nil for what it does not count here.
type CgroupStats struct {
	CPU        *time.Duration
	Memory     *muster.Size // current
	MemoryPeak *muster.Size
	OOMKills   *int // processes killed because the task was out of memory
	LikelyOOM  bool // replaces OOMKills: its memory was full, and a process on this machine was killed for memory
	PIDs       *int // processes and threads, current
	PIDsDenied *int // forks that failed at the limit
	Read       *muster.Size
	Written    *muster.Size
}

// ProxyPort is the port of the proxy on the loopback device of a task with network: allowlist.
const ProxyPort = 3128

// ProxyEnv returns the environment entries that make programs use the proxy of network: allowlist. Names are in both cases: curl reads only
// the lower-case http_proxy, others only the upper-case one. Connections to the task's own loopback device bypass the proxy, unless hosts
// (allow_hosts) has that address: then it means the worker's.
func ProxyEnv(hosts []string) []string {
	bypass := slices.DeleteFunc([]string{"localhost", "127.0.0.1", "::1"}, func(name string) bool {
		return slices.ContainsFunc(hosts, func(host string) bool {
			return host == name || strings.HasPrefix(host, name+":") || strings.HasPrefix(host, "["+name+"]")
		})
	})
	proxyURL, noProxy := "http://127.0.0.1:"+strconv.Itoa(ProxyPort), strings.Join(bypass, ",")
	return []string{
		"http_proxy=" + proxyURL, "https_proxy=" + proxyURL, "all_proxy=" + proxyURL, "no_proxy=" + noProxy,
		"HTTP_PROXY=" + proxyURL, "HTTPS_PROXY=" + proxyURL, "ALL_PROXY=" + proxyURL, "NO_PROXY=" + noProxy,
	}
}
