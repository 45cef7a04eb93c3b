package muster

import "encoding/json"

// Limits of a spec.
const (
	MaxTasks        = 10_000_000 // tasks in a job
	MaxStages       = 1_000      // stages in a job
	MaxSpecSize     = 1 << 20    // bytes of a spec as JSON
	MaxResultSize   = 256 << 10  // bytes of a task's result
	MaxGangSize     = 1_000      // members of a gang
	MaxPriority     = 100
	MinPriority     = 0
	DefaultPriority = 50

	MaxNameSize = 64      // bytes of a stage's, project's or axis' name, of a tag and of a label's name
	MaxInputs   = 10_000  // artifacts that are put into one task's folder
	MaxPIDs     = 1 << 22 // processes and threads of a task: what Linux has numbers for
)

// Spec is what a user submits. Package valid says whether it can be accepted, and
// Normalize fills in what was left out.
type Spec struct {
	Name     string            `json:"name,omitempty"`
	Project  string            `json:"project,omitempty"`
	Priority *int              `json:"priority,omitempty"` // 0 to 100, higher first
	Labels   map[string]string `json:"labels,omitempty"`
	Notify   []Notify          `json:"notify,omitempty"`
	Tasks    []TaskSpec        `json:"tasks"`
}

// TaskSpec describes one stage of a job: a task, or an array of tasks.
type TaskSpec struct {
	Name         string            `json:"name,omitempty"`
	Kind         string            `json:"kind,omitempty"`
	Needs        []string          `json:"needs,omitempty"` // stages that must succeed first
	Array        *Array            `json:"array,omitempty"`
	Matrix       *Matrix           `json:"matrix,omitempty"`
	Files        string            `json:"files,omitempty"` // a local folder; once submitted, sha256:… of a Tree
	Run          *Command          `json:"run,omitempty"`
	Script       *Script           `json:"script,omitempty"`
	Python       *Python           `json:"python,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Image        string            `json:"image,omitempty"`     // of a container, such as python:3.12 or ghcr.io/acme/train@sha256:…
	Isolation    string            `json:"isolation,omitempty"` // container, process or auto; default: container with an image, else process
	Container    *Container        `json:"container,omitempty"`
	Resources    Request           `json:"resources,omitzero"`
	Where        Where             `json:"where,omitzero"`
	Timeout      Duration          `json:"timeout,omitempty"`       // of one attempt; 0 means none
	QueueTimeout Duration          `json:"queue_timeout,omitempty"` // from queued to started; 0 means none
	Retries      Retries           `json:"retries,omitzero"`
	Kill         Kill              `json:"kill,omitzero"`
	Disconnect   Disconnect        `json:"disconnect,omitzero"`
	Inputs       []Input           `json:"inputs,omitempty"`
	Outputs      []string          `json:"outputs,omitempty"` // globs in the task's folder; ** crosses folders
	Checkpoint   *Checkpoint       `json:"checkpoint,omitempty"`
	Network      string            `json:"network,omitempty"`        // host (default of processes), bridge (default of containers), allowlist or none
	AllowHosts   []string          `json:"allow_hosts,omitempty"`    // network: allowlist: names or addresses with an optional port, such as pypi.org, *.hf.co:443
	Launcher     string            `json:"launcher,omitempty"`       // torchrun, or "" for none
	NProcPerNode int               `json:"nproc_per_node,omitempty"` // processes that the launcher starts; 0 means one for each GPU, or one
	Gang         *Gang             `json:"gang,omitempty"`
	Input        json.RawMessage   `json:"input,omitempty"` // of the kind
}

// The kinds that every worker has. Noop succeeds at once without a process.
const (
	KindNoop    = "noop"
	KindProcess = "process"
	KindScript  = "script"
)

// KindContainer is the kind of workers that have a container engine.
const KindContainer = "container"

// What a task may run in.
const (
	IsolationContainer = "container"
	IsolationProcess   = "process"
	IsolationAuto      = "auto" // a container where the worker has an engine, else a process
)

// Command is what to execute: a list is executed directly, a string by sh -c.
// In JSON it is the list or the string itself.
type Command struct {
	Shell string
	Argv  []string
}

// Script is a program that travels with the job or is fetched by the worker.
// Exactly one of Text, File and URL is set; in a submitted spec File has become
// Text. In a spec file a bare string means Text.
type Script struct {
	Text        string   `json:"text,omitempty"`
	File        string   `json:"file,omitempty"`
	URL         string   `json:"url,omitempty"`
	SHA256      string   `json:"sha256,omitempty"`      // what the URL must deliver
	Interpreter []string `json:"interpreter,omitempty"` // default: the #! line, else by the name's suffix, else sh
	Args        []string `json:"args,omitempty"`
}

// Python asks for an environment of its own for the task.
type Python struct {
	Requirements string   `json:"requirements,omitempty"` // a file in the task's folder
	Packages     []string `json:"packages,omitempty"`     // such as "numpy>=2"
	Version      string   `json:"version,omitempty"`      // such as "3.12"
}

// Retries says how often and when a failed task is tried again. Failures by the
// fleet's fault are tried again beyond Max.
type Retries struct {
	Max        int      `json:"max,omitempty"`
	Backoff    Duration `json:"backoff,omitempty"`     // before the first retry; doubles each time; default 1s
	MaxBackoff Duration `json:"max_backoff,omitempty"` // default 10m
	On         []string `json:"on,omitempty"`          // reasons, or exit:N; default: every failure
}

// Kill says how a task is stopped: Signal, then after Grace SIGKILL to all of
// its process group.
type Kill struct {
	Signal string   `json:"signal,omitempty"` // default SIGTERM
	Grace  Duration `json:"grace,omitempty"`  // default 10s
}

// Signals lists the signals that kill.signal may name.
var Signals = []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2", "SIGKILL"}

// What happens when an attempt's lease ends without a word from its worker.
const (
	DisconnectRequeue = "requeue"
	DisconnectFail    = "fail"
)

// Disconnect says how long an attempt may go on while its worker is away.
type Disconnect struct {
	Grace Duration `json:"grace,omitempty"` // default 10m
	Then  string   `json:"then,omitempty"`  // requeue (default) or fail
}

// Input is an artifact of a needed stage that lands in the task's folder. From an
// array each element's artifact lands under the element's number.
type Input struct {
	From string `json:"from"`
	Name string `json:"name"`
	As   string `json:"as,omitempty"` // default: Name
}

// Checkpoint says that a stage's tasks save their state in $MUSTER_CHECKPOINT and
// can go on from there. The folder is copied off the worker while a task runs,
// so that its next attempt finds it on any worker. A task that has to make room
// is sent Signal, has Grace to save, and is queued again. In JSON it is the
// object, or a text that is Path.
type Checkpoint struct {
	Path   string   `json:"path,omitempty"`   // a folder in the task's own that leads to $MUSTER_CHECKPOINT; "" for none
	Every  Duration `json:"every,omitempty"`  // between two looks for changes; default 30s
	Signal string   `json:"signal,omitempty"` // default: kill.signal
	Grace  Duration `json:"grace,omitempty"`  // default: kill.grace
}

// The networks that a task may have.
const (
	NetworkHost = "host" // the worker's own
	NetworkNone = "none" // one of its own with nothing but loopback

	NetworkBridge    = "bridge"    // of containers: one of its own with a way out
	NetworkAllowlist = "allowlist" // one of its own with a proxy to AllowHosts, and no other way out
)

// When a worker looks for an image in its registry.
const (
	PullMissing = "missing" // if the worker does not have it
	PullAlways  = "always"  // before each attempt; the worker's own will not do
	PullNever   = "never"   // the worker has it, or the task fails
)

// Container says how a task's container is made. It is not heeded where the task runs as a process.
type Container struct {
	Entrypoint   []string `json:"entrypoint,omitzero"`    // in place of the image's; an empty list means none
	Workdir      string   `json:"workdir,omitempty"`      // default: the task's folder, or the image's own where run is left out
	User         string   `json:"user,omitempty"`         // name or number, with :group; default: the image's
	Pull         string   `json:"pull,omitempty"`         // missing (default), always or never
	ShmSize      Size     `json:"shm_size,omitempty"`     // of /dev/shm; default: the engine's, usually 64 MiB
	ReadOnly     bool     `json:"read_only,omitempty"`    // the image's files cannot be changed; /tmp and the task's folders can
	Capabilities []string `json:"capabilities,omitempty"` // kept besides those that every container has, such as NET_RAW
	Mounts       []Mount  `json:"mounts,omitempty"`       // folders of the worker, if its owner allows them
}

// Capabilities lists those that container.capabilities may name: what Docker grants by default.
var Capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// Mount is a file or folder of the worker that a container has.
type Mount struct {
	Source   string `json:"source"` // absolute, on the worker
	Target   string `json:"target"` // absolute, in the container
	ReadOnly bool   `json:"read_only,omitempty"`
}

// LauncherTorchrun starts a task's processes by torchrun.
const LauncherTorchrun = "torchrun"

// What becomes of a gang that loses a member.
const (
	GangRestart = "restart" // all others are stopped, and the gang starts anew as retries allow
	GangEnd     = "end"     // all others are stopped, and the gang has failed
)

// Gang makes a stage Size tasks that start together or not at all, on as many
// workers as it takes. Each has a rank, which is its element. In JSON it is the object, or
// a number that is Size.
type Gang struct {
	Size   int    `json:"size"`
	OnLoss string `json:"on_loss,omitempty"` // restart (default) or end
}

// Array makes a stage many tasks, one for each element. In JSON it is a text of
// numbers and ranges, such as "1-1000" or "0-9,20,30-39:3".
type Array struct {
	Ranges []Range
}

// Range is First to Last in steps of Step ≥ 1; 0 means 1.
type Range struct{ First, Last, Step int64 }

// Matrix makes a stage one task for each combination of its axes' values. In JSON
// it is an object; an axis is a list of values or a text of ranges like an
// Array's. The axis named first varies slowest.
type Matrix struct {
	Axes []Axis
}

// Axis is one dimension of a Matrix. Values are texts as they would be written
// into a command.
type Axis struct {
	Name   string
	Values []string
}
