package run

import (
	"time"

	"github.com/muster-dev/muster"
)

// IsolationSpec is what holds a task's processes: made by a Limiter on the worker,
// carried out where the process is started, and kept with it.
type IsolationSpec struct {
	Cgroups         []Cgroup `json:"cgroups,omitempty"` // to be entered
	User            *User    `json:"user,omitempty"`    // to become; nil means the worker's own
	View            *View    `json:"view,omitempty"`    // what it sees of the machine, whoever it may be; nil means all
	Sandbox         *Sandbox `json:"sandbox,omitempty"`
	NoNet           bool     `json:"no_net,omitempty"` // a network of its own with nothing but loopback
	AllowHosts      []string `json:"hosts,omitempty"`  // with NoNet: what it may reach all the same, by a proxy; see Proxied
	Rlimits         []Rlimit `json:"rlimits,omitempty"`
	NoNewPrivileges bool     `json:"no_new_privileges,omitempty"`

	// CgroupParent is the path of Cgroups below the mount of each hierarchy, such as
	// /muster-5e1f/17.3-2, by which a container is put into them: "" where it cannot be, for they are not
	// all of one path, or this machine has none for us.
	CgroupParent string `json:"parent,omitempty"`

	// What no kernel enforces here and is to be watched instead; 0 for what is enforced or
	// not limited.
	WatchMemory muster.Size `json:"watch_memory,omitempty"`
	WatchPIDs   int         `json:"watch_pids,omitempty"`
	WatchDisk   muster.Size `json:"watch_disk,omitempty"`
}

// Cgroup is a control group that an attempt's processes are in.
type Cgroup struct {
	Path           string   `json:"path"`                  // absolute, of the folder
	Unified        bool     `json:"unified,omitempty"`     // of version 2
	Controllers    []string `json:"controllers,omitempty"` // that are of use in it, such as memory
	Shared         bool     `json:"shared,omitempty"`      // with other attempts: not to be killed or removed
	OOMKillsBefore int      `json:"before,omitempty"`      // processes that were killed for memory in it before; on the machine, if version 1 would count those of a container
}

// User is whom a task runs as. It has no capabilities.
type User struct {
	UID           uint32   `json:"uid"`
	GID           uint32   `json:"gid"`
	Groups        []uint32 `json:"groups,omitempty"`
	Name          string   `json:"name,omitempty"`    // as the environment tells it
	Dynamic       bool     `json:"dynamic,omitempty"` // nobody else is this user while the attempt runs
	GroupWritable bool     `json:"shares,omitempty"`  // its files are for its groups to change, too
}

// View is what a task sees of the machine, in a mount namespace that all tasks with the same view are in. In any of them
// /proc shows no process that the task may not trace.
type View struct {
	Hide []string `json:"hide,omitempty"` // folders that hold nothing but what is in Show
	Show []string `json:"show,omitempty"` // paths in these
}

// Sandbox is what a task may see and change of the file system. Files of
// folders are meant with them.
type Sandbox struct {
	Read  []string `json:"read"`  // may be read and executed
	Write []string `json:"write"` // may be changed, too
	List  []string `json:"list"`  // folders: what is in them may be seen, but not opened
}

// Rlimit is a limit of setrlimit(2), for the soft and the hard one alike.
type Rlimit struct {
	Name  string `json:"name"` // such as nofile
	Value uint64 `json:"value"`
}

// Isolator keeps tasks to their resources and away from what is not theirs. All
// methods may be called at the same time.
type Isolator interface {
	// Prepare makes what holds an attempt. folders are its own: they are given to
	// the user that it is to run as. A TaskError says why it cannot be made.
	Prepare(t *Task, folders Folders) (*IsolationSpec, error)
	// PrepareContainer makes the control groups of an attempt that runs in a container, which is
	// to be made in their Parent. What is to be watched is so for one that is not in them, as where
	// this machine has none for us.
	PrepareContainer(t *Task) (*IsolationSpec, error)
	// PrepareTool makes what holds a program of the worker's own that may come to run what tasks
	// chose, such as one that builds packages: it may read what tasks may, and read, and change
	// what is in write.
	PrepareTool(read, write []string) *IsolationSpec
	// Stats tells what the kernel counted of a task so far.
	Stats(c *IsolationSpec) CgroupStats
	// CurrentStats is Counted without MemoryPeak, OOMKills, Starved and PIDsDenied: it costs less.
	CurrentStats(c *IsolationSpec) CgroupStats
	// Processes lists the processes of a task. It reports false if the kernel does not keep
	// them together, and they have to be found by their parents and sessions.
	Processes(c *IsolationSpec) (pids []int, ok bool)
	// Release removes what Confine or Contain made, once nothing of the task is left.
	Release(c *IsolationSpec)
}

// Folders are those of an attempt.
type Folders struct {
	Base       string // holds all but the checkpoint
	Work       string
	Out        string
	Tmp        string
	Checkpoint string
	Runtime    string // of its Python environment, "" for none; not its own

	Read  []string // what else of the worker's it may read: folders and files
	Write []string // folders of the worker's that it may change, with all tasks of their user
}

// CgroupStats is what the kernel counted of all processes of a task. Pointers are nil for
// what it does not count here.
type CgroupStats struct {
	CPU        *time.Duration
	Memory     *muster.Size // now
	MemoryPeak *muster.Size
	OOMKills   *int // processes killed because the task had no more memory
	LikelyOOM  bool // in place of OOMKills: its memory was full, and something on this machine was killed for want of some
	PIDs       *int // processes and threads now
	PIDsDenied *int // forks that were refused because there were too many
	Read       *muster.Size
	Written    *muster.Size
}
