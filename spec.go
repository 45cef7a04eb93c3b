package muster

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Limits of a spec.
const (
	MaxTasks        = 10_000_000 // tasks in a job
	MaxStages       = 10_000     // stages in a job
	MaxSpecSize     = 1 << 20    // bytes of a spec as JSON
	MaxResultSize   = 256 << 10  // bytes of a task's result
	MaxGangSize     = 1_000      // members of a gang
	MaxPriority     = 100
	MinPriority     = 0
	DefaultPriority = 50

	MaxNameSize = 64      // bytes of the name of a stage, project, axis or label, and of a tag
	MaxInputs   = 10_000  // artifacts that are copied into one task's folder
	MaxStdin    = 1 << 30 // bytes of standard input
	MaxPIDs     = 1 << 22 // processes and threads of a task: Linux's limit

	MinGraceHeartbeats = 2 // minimum of disconnect.grace in heartbeat intervals of the worker

	MaxTimeout = Duration(100 * 365 * 24 * time.Hour) // of a task

	MinLogCap     Size = 256 << 10
	MaxLogCap     Size = 16 << 30
	DefaultLogCap Size = 64 << 20
)

// Spec is what a user submits. Package specvalidate checks it, Normalize sets defaults.
type Spec struct {
	Name     string            `json:"name,omitempty"`
	Project  string            `json:"project,omitempty"`
	Priority *int              `json:"priority,omitempty"` // 0 to 100, higher first
	Labels   map[string]string `json:"labels,omitempty"`
	Params   map[string]Param  `json:"params,omitempty"`
	Notify   []Notify          `json:"notify,omitempty"`

	OnFailure   string `json:"on_failure,omitempty"`   // continue (default), or stop; default with MaxFailures: stop
	MaxFailures int    `json:"max_failures,omitempty"` // on_failure: stop: tasks that may fail before the job stops

	Tasks []TaskSpec `json:"tasks"`

	Signature *Signature `json:"signature,omitempty"` // of muster submit --sign; see package signedjob
}

// TaskSpec describes one stage of a job: a task, or several that are alike.
type TaskSpec struct {
	Name         string            `json:"name,omitempty"`
	Kind         string            `json:"kind,omitempty"`
	Needs        []string          `json:"needs,omitempty"` // stages that must end first, and succeed unless When says otherwise
	When         string            `json:"when,omitempty"`  // succeeded (default), failed, always, or an expression over results of other stages
	Array        *Array            `json:"array,omitempty"`
	Matrix       *Matrix           `json:"matrix,omitempty"`
	Sweep        *Sweep            `json:"sweep,omitempty"`
	Files        string            `json:"files,omitempty"` // a local folder; once submitted, sha256:… of a Tree
	Run          *Command          `json:"run,omitempty"`
	Script       *Script           `json:"script,omitempty"`
	Python       *Python           `json:"python,omitempty"`
	Stdin        string            `json:"stdin,omitempty"` // a local file; once submitted, sha256:… of its content
	Env          map[string]string `json:"env,omitempty"`
	Secrets      []Secret          `json:"secrets,omitempty"`   // of the project
	Image        string            `json:"image,omitempty"`     // of a container, such as python:3.12 or ghcr.io/acme/train@sha256:…
	Isolation    string            `json:"isolation,omitempty"` // container, process or auto; default: container with an image, else process
	Container    *Container        `json:"container,omitempty"`
	Resources    Request           `json:"resources,omitzero"`
	Where        Where             `json:"where,omitzero"`
	Timeout      Duration          `json:"timeout,omitempty"`       // of one attempt; 0 means none
	QueueTimeout Duration          `json:"queue_timeout,omitempty"` // from queued to started; 0 means none
	LogCap       Size              `json:"log_cap,omitempty"`       // bytes that are kept of an attempt's output, half of them its beginning; 0 means the worker's default
	Retries      Retries           `json:"retries,omitzero"`
	Kill         Kill              `json:"kill,omitzero"`
	Disconnect   Disconnect        `json:"disconnect,omitzero"`
	Inputs       []Input           `json:"inputs,omitempty"`
	Outputs      []string          `json:"outputs,omitempty"` // globs in the task's folder; ** crosses folders
	Checkpoint   *Checkpoint       `json:"checkpoint,omitempty"`
	Cache        CacheLifetime     `json:"cache,omitempty"`          // take the result of an identical task of the project that is not older; 0 means always run
	Network      string            `json:"network,omitempty"`        // host (default of processes), bridge (default of containers), allowlist or none
	AllowHosts   []string          `json:"allow_hosts,omitempty"`    // network: allowlist: names or addresses with an optional port, such as pypi.org, *.hf.co:443
	Launcher     string            `json:"launcher,omitempty"`       // torchrun, or "" for none
	NProcPerNode int               `json:"nproc_per_node,omitempty"` // processes that the launcher starts; 0 means one per GPU, at least one
	Gang         *Gang             `json:"gang,omitempty"`
	Input        json.RawMessage   `json:"input,omitempty"`     // for the kind
	SignedBy     string            `json:"signed_by,omitempty"` // fingerprint of the key of the spec's Signature; the server sets it
}

// Signature is a signed statement about a job, with which a worker can tell what the key's owner submitted from what a server makes of it.
type Signature struct {
	Statement string `json:"statement"` // JSON; see signedjob.Statement
	Armor     string `json:"signature"` // SSH signature of its bytes
}

// Limits of a Signature, in bytes.
const (
	MaxStatement = 512 << 10
	MaxArmor     = 16 << 10
)

// The values of Spec.OnFailure.
const (
	OnFailureContinue = "continue" // stages that do not need a failed one run
	OnFailureStop     = "stop"     // the other tasks are cancelled, except in stages that run after failures
)

// The values of TaskSpec.When that are not expressions.
const (
	WhenSucceeded = "succeeded" // all tasks of the needed stages have succeeded
	WhenFailed    = "failed"    // they have ended, and one of them, or of the stages before them, has failed or timed out
	WhenAlways    = "always"    // they have ended
)

// RunsAfterFailure reports whether the stage may run when a stage that it needs did not succeed.
func (t *TaskSpec) RunsAfterFailure() bool { return t.When == WhenFailed || t.When == WhenAlways }

// WhenExpression returns the stage's condition, or "".
func (t *TaskSpec) WhenExpression() string {
	if t.RunsAfterFailure() || t.When == WhenSucceeded {
		return ""
	}
	return t.When
}

// The kinds that every worker supports. Noop succeeds at once without a process.
const (
	KindNoop    = "noop"
	KindProcess = "process"
	KindScript  = "script"
)

// KindContainer is supported by workers with a container engine.
const KindContainer = "container"

// The values of TaskSpec.Isolation.
const (
	IsolationContainer = "container"
	IsolationProcess   = "process"
	IsolationAuto      = "auto" // a container if the worker has an engine, else a process
)

// Command is what to execute: Argv directly, or Shell by sh -c. In JSON it is a
// list or a string.
type Command struct {
	Shell string
	Argv  []string
}

// Script is a program that is part of the job or downloaded by the worker. Exactly
// one of Text, File and URL is set; the client replaces File by Text before it
// submits. In a spec file a bare string means Text.
type Script struct {
	Text        string   `json:"text,omitempty"`
	File        string   `json:"file,omitempty"`
	URL         string   `json:"url,omitempty"`
	SHA256      string   `json:"sha256,omitempty"`      // of the content at URL
	Interpreter []string `json:"interpreter,omitempty"` // default: the #! line, else by the file extension, else python3 if LooksLikePython, else sh
	Args        []string `json:"args,omitempty"`
}

// Python describes a Python environment for the task.
type Python struct {
	Project      string   `json:"project,omitempty"`      // a folder of the task's files whose pyproject.toml is installed, such as "."
	Extras       []string `json:"extras,omitempty"`       // optional dependencies of Project
	Groups       []string `json:"groups,omitempty"`       // dependency groups of Project
	Requirements string   `json:"requirements,omitempty"` // a file in the task's folder
	Packages     []string `json:"packages,omitempty"`     // such as "numpy>=2", or a folder or wheel of the task's files, such as "./lib"
	Version      string   `json:"version,omitempty"`      // such as "3.12"
}

// UsesFiles reports whether the environment has packages of the task's own files.
func (p *Python) UsesFiles() bool {
	return p.Project != "" || slices.ContainsFunc(p.Packages, IsLocalPackage)
}

// IsLocalPackage reports whether an entry of Python.Packages is a path in the task's files.
func IsLocalPackage(name string) bool { return strings.HasPrefix(name, "./") }

// Retries says how often and when to retry a failed task. Failures that the fleet
// caused do not count against Max: see Reason.FleetFault.
type Retries struct {
	Max        int      `json:"max,omitempty"`
	Backoff    Duration `json:"backoff,omitempty"`     // before the first retry; doubles each time; default 1s
	MaxBackoff Duration `json:"max_backoff,omitempty"` // default 10m
	On         []string `json:"on,omitempty"`          // reasons, or exit:N; default: every failure
}

// Kill says how to stop a task: send Signal to its process group (in a container to its main process), then after Grace
// SIGKILL to all of its processes.
type Kill struct {
	Signal string   `json:"signal,omitempty"` // default SIGTERM
	Grace  Duration `json:"grace,omitempty"`  // default 10s
}

// Defaults of Kill.
const (
	DefaultKillSignal = "SIGTERM"
	DefaultKillGrace  = Duration(10 * time.Second)
)

// TaskSignals lists the values of kill.signal and checkpoint.signal.
var TaskSignals = []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGUSR1", "SIGUSR2", "SIGKILL"}

// DefaultDisconnectGrace is the default of Disconnect.Grace.
const DefaultDisconnectGrace = Duration(10 * time.Minute)

// What happens when an attempt's lease expires without contact to its worker.
const (
	DisconnectRequeue = "requeue"
	DisconnectFail    = "fail"
)

// Disconnect says how long an attempt may continue while its worker is unreachable.
type Disconnect struct {
	Grace Duration `json:"grace,omitempty"` // default 10m
	Then  string   `json:"then,omitempty"`  // requeue (default) or fail
}

// Input is an artifact of a needed stage, copied into the task's folder. From an
// array, each element's artifact is copied below the element's number.
type Input struct {
	From string `json:"from"`
	Name string `json:"name"`
	As   string `json:"as,omitempty"` // default: Name
}

// Checkpoint says that a stage's tasks save their state in $MUSTER_CHECKPOINT and
// can resume from there. The worker uploads the folder while a task runs, so that
// the next attempt finds it on any worker. A preempted task gets Signal, has Grace
// to save, and is queued again. In JSON it is an object, or a string: Path.
type Checkpoint struct {
	Path   string   `json:"path,omitempty"`   // a link to $MUSTER_CHECKPOINT in the task's folder; "" for none
	Every  Duration `json:"every,omitempty"`  // interval between uploads of changes; default 30s
	Signal string   `json:"signal,omitempty"` // default: kill.signal
	Grace  Duration `json:"grace,omitempty"`  // default: kill.grace
}

// The values of TaskSpec.Network.
const (
	NetworkHost = "host" // the host's network
	NetworkNone = "none" // a separate network with loopback only

	NetworkBridge    = "bridge"    // a separate network with outgoing connections, for containers
	NetworkAllowlist = "allowlist" // a separate network with a proxy to AllowHosts only
)

// The values of Container.Pull: when a worker pulls an image.
const (
	PullMissing = "missing" // if the worker does not have it
	PullAlways  = "always"  // before each attempt
	PullNever   = "never"   // the task fails if the worker does not have it
)

// Container has the options of a task's container. It is ignored if the task runs as a process.
type Container struct {
	Entrypoint   []string `json:"entrypoint,omitzero"`    // replaces the image's; an empty list means none
	Workdir      string   `json:"workdir,omitempty"`      // default: the task's folder, or the image's own without run
	User         string   `json:"user,omitempty"`         // name or number, with :group; default: the image's
	Pull         string   `json:"pull,omitempty"`         // missing (default), always or never
	ShmSize      Size     `json:"shm_size,omitempty"`     // of /dev/shm; default: the engine's, usually 64 MiB
	ReadOnly     bool     `json:"read_only,omitempty"`    // the image's files are read-only; /tmp and the task's folders are writable
	Capabilities []string `json:"capabilities,omitempty"` // added to the default ones, such as NET_RAW
	Mounts       []Mount  `json:"mounts,omitempty"`       // host folders, if the worker's owner allows them
}

// Capabilities lists the values of container.capabilities: what Docker grants by default.
var Capabilities = []string{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}

// Mount is a file or folder of the worker that is mounted into a container.
type Mount struct {
	Source   string `json:"source"` // absolute, on the worker
	Target   string `json:"target"` // absolute, in the container
	ReadOnly bool   `json:"read_only,omitempty"`
}

// LauncherTorchrun starts a task's processes with torchrun.
const LauncherTorchrun = "torchrun"

// The values of Gang.OnLoss: what happens if a member ends early.
const (
	GangRestart = "restart" // stop all others, and restart the gang as retries allow
	GangEnd     = "end"     // stop all others; the gang fails
)

// Gang expands a stage to Size tasks that start together or not at all, on as many
// workers as needed. A task's element is its rank. In JSON it is an object, or a
// number: Size.
type Gang struct {
	Size   int    `json:"size"`
	OnLoss string `json:"on_loss,omitempty"` // restart (default) or end
}

// Array expands a stage to one task per element. In JSON it is a string of numbers
// and ranges, such as "1-1000" or "0-9,20,30-39:3".
type Array struct {
	Ranges []Range
	Limit  int // of tasks that run at once; 0 means none

	From  string            // reference to a list or a number, such as prepare.result.shards, that determines the elements when the stage is ready
	Items []json.RawMessage // what From was: the values of the elements
}

// Range is First to Last in steps of Step ≥ 1; 0 means 1.
type Range struct{ First, Last, Step int64 }

// Matrix expands a stage to one task for each combination of its axes' values. In
// JSON it is an object; an axis is a list of values or a string of ranges as in an
// Array. The first axis varies slowest.
type Matrix struct {
	Axes []Axis
}

// Axis is one dimension of a Matrix. Values are written as in a command.
type Axis struct {
	Name   string
	Values []string
}
