package link

import (
	"encoding/json"

	"github.com/muster-dev/muster"
)

// Version is the protocol version that this build speaks. A Hello with another
// one is refused with a Goodbye that names both.
const Version = 6

// MaxOwnKinds is the most bytes of the definitions of kinds that a worker tells of.
const MaxOwnKinds = 1 << 20

// MaxFrame is the most bytes of one frame. A longer one ends the session.
const MaxFrame = 8 << 20

// MaxLogs is the most log bytes in one frame.
const MaxLogs = 1 << 20

// MaxGPUs is the most devices in one list: of a machine, of a load, of a Heal.
const MaxGPUs = 1024

// HealAll stands in ToWorker.Heal for every quarantined GPU of the worker.
const HealAll = "all"

// MaxGroupSpecs is how many group specs a session remembers: a worker may forget a
// GroupSpec once that many later ones came.
const MaxGroupSpecs = 1000

// MaxNewGroupSpecs is the most group specs in one frame, and how many the server refers to:
// the last ones. Specs precede the offers of their frame, so that one in which
// others are new may not refer to the oldest that a worker remembers.
const MaxNewGroupSpecs = MaxGroupSpecs / 2

// ToServer is one frame from a worker. All messages that wait travel in one
// frame. The first frame of a session has Hello, later ones must not. Within a
// frame the order of effect is the order of the fields.
type ToServer struct {
	Seq      uint64             `json:"seq"` // from 1, without gaps
	Hello    *Hello             `json:"hello,omitempty"`
	Ready    *Ready             `json:"ready,omitempty"`
	Offer    *Offer             `json:"offer,omitempty"`
	Accepted []muster.AttemptID `json:"accepted,omitempty"`
	Rejected []Rejected         `json:"rejected,omitempty"`
	Started  []Started          `json:"started,omitempty"`
	Progress []muster.Progress  `json:"progress,omitempty"`
	Logs     []LogChunk         `json:"logs,omitempty"`
	Saved    []Saved            `json:"saved,omitempty"`
	Finished []muster.Report    `json:"finished,omitempty"` // repeated in a new session until FinishedAck
	Renew    *Renew             `json:"renew,omitempty"`
	Ping     bool               `json:"ping,omitempty"`
	Goodbye  *Goodbye           `json:"goodbye,omitempty"` // the last frame
}

// ToWorker is one frame from the server. The first one of a session has Welcome
// or Goodbye.
type ToWorker struct {
	Seq         uint64             `json:"seq"` // from 1, without gaps
	Welcome     *Welcome           `json:"welcome,omitempty"`
	Specs       []GroupSpec        `json:"specs,omitempty"`
	Assign      []Assign           `json:"assign,omitempty"`
	Cancel      []Cancel           `json:"cancel,omitempty"`
	FinishedAck []muster.AttemptID `json:"finished_ack,omitempty"` // the report is on disk, or refused for good
	LogAck      []LogAck           `json:"log_ack,omitempty"`
	Drain       bool               `json:"drain,omitempty"` // nothing is left to do: leave
	Heal        []string           `json:"heal,omitempty"`  // UUIDs of quarantined GPUs to look at again; "all" means each
	Pong        bool               `json:"pong,omitempty"`
	Goodbye     *Goodbye           `json:"goodbye,omitempty"` // the last frame
}

// Hello says who the worker is, what it has and what it holds.
type Hello struct {
	Version   int                `json:"version"`
	Worker    muster.WorkerID    `json:"worker"` // its own, from Joined
	Name      string             `json:"name"`
	Build     string             `json:"build"`
	Tags      []string           `json:"tags,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Kinds     []string           `json:"kinds"`
	Price     float64            `json:"price,omitempty"`
	Resources muster.Resources   `json:"resources"`
	OwnKinds  json.RawMessage    `json:"own_kinds,omitempty"` // see muster.Worker
	Allow     *muster.Allow      `json:"allow,omitempty"`     // what its owner lets tasks have; absent means all
	Lacks     []string           `json:"lacks,omitempty"`     // features that it cannot carry out; see muster.Worker
	Projects  []string           `json:"projects,omitempty"`  // whose tasks it takes; none means all
	Address   string             `json:"address,omitempty"`   // at which other workers reach it; "" means where the server sees it
	Held      []muster.AttemptID `json:"held,omitempty"`      // running here, or finished with a report that is not acknowledged
	Stale     []muster.AttemptID `json:"stale,omitempty"`     // others that still have processes here, or log bytes to ship

	Constrained string `json:"constrained,omitempty"` // why it takes no tasks yet, as in Ready; "" if it does

	RemoteIP string `json:"-"` // where the server sees the worker, see ServerConn; set by Serve
}

// Welcome answers Hello.
type Welcome struct {
	Heartbeat muster.Duration    `json:"heartbeat"`      // send Renew at least this often
	Keep      []LogAck           `json:"keep,omitempty"` // of the attempts held: go on; and what the server has of their logs
	Stop      []muster.AttemptID `json:"stop,omitempty"` // of the attempts held: kill and forget, report nothing
}

// Ready says whether the worker takes tasks.
type Ready struct {
	Constrained string `json:"constrained,omitempty"` // why not; "" if it does
}

// Offer replaces what Hello said of the machine, after it changed.
type Offer struct {
	Tags      []string         `json:"tags,omitempty"`
	Kinds     []string         `json:"kinds"`
	Resources muster.Resources `json:"resources"`
	OwnKinds  json.RawMessage  `json:"own_kinds,omitempty"`
	Allow     *muster.Allow    `json:"allow,omitempty"`
	Lacks     []string         `json:"lacks,omitempty"`
	Projects  []string         `json:"projects,omitempty"`
}

// Saved says that the attempt's checkpoint folder is on the server as the muster.Tree
// with this hash. Only the last one counts; it is said again in a new session.
type Saved struct {
	Attempt muster.AttemptID `json:"attempt"`
	SHA256  string           `json:"sha256"`
}

// GroupSpec tells what the tasks of one stage have in common. It precedes, in the
// same session, every Assign that refers to it.
type GroupSpec struct {
	Ref  int             `json:"ref"` // of this session, from 1
	UID  string          `json:"uid"` // of the job; see muster.Job
	Name string          `json:"name"`
	Spec muster.TaskSpec `json:"spec"`
}

// Assign offers an attempt. The worker answers Accepted or Rejected; Started and
// Finished imply Accepted.
type Assign struct {
	Attempt muster.AttemptID `json:"attempt"`
	Ref     int              `json:"ref"`
	Element string           `json:"element,omitempty"` // $MUSTER_INDEX of an array's element, "lr=0.1,seed=2" of a matrix's
	Spec    *muster.TaskSpec `json:"spec,omitempty"`    // in place of the group's, where ${index} or ${matrix…} is bound
	Grant   muster.Grant     `json:"grant,omitzero"`
	Inputs  []Input          `json:"inputs,omitempty"`

	Checkpoint string `json:"checkpoint,omitempty"` // sha256 of the Tree that an earlier attempt saved
	Gang       *Gang  `json:"gang,omitempty"`
}

// Gang tells a member of a gang its place. Its rank is its element.
type Gang struct {
	Rank   int    `json:"rank"`
	Size   int    `json:"size"`
	Master string `json:"master"` // host name or address of the worker of rank 0
	Port   int    `json:"port"`   // on which the master listens
}

// Input is an artifact to bring into the task's folder before it starts.
type Input struct {
	Path   string `json:"path"` // slash-separated, relative to the task's folder
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Cancel ends an attempt. With Drop nobody waits for a report. With the reason
// Preempted a task with a checkpoint is given the signal and the grace of that.
type Cancel struct {
	Attempt muster.AttemptID `json:"attempt"`
	Reason  muster.Reason    `json:"reason,omitempty"`
	Drop    bool             `json:"drop,omitempty"`
}

// Rejected says that the worker will not run an attempt.
type Rejected struct {
	Attempt     muster.AttemptID `json:"attempt"`
	Message     string           `json:"message"`
	Constrained bool             `json:"constrained,omitempty"` // it takes nothing for now: once it is Ready it may be offered the same task again
}

// Started says that an attempt's process runs, or its work has begun.
type Started struct {
	Attempt muster.AttemptID `json:"attempt"`
	At      muster.Time      `json:"at"`
}

// Renew renews the leases of all attempts in Held.
type Renew struct {
	Held []muster.AttemptID `json:"held,omitempty"`
	Load *muster.Load       `json:"load,omitempty"`
}

// LogChunk is a range of an attempt's log (package tasklog), as bytes.
type LogChunk struct {
	Attempt muster.AttemptID `json:"attempt"`
	Offset  int64            `json:"offset"`
	Data    []byte           `json:"data"`
}

// LogAck says how many bytes of a log the server has: send from there. It
// answers every LogChunk, and is how a gap is mended. With a Pause the server could
// not store the rest of what was sent, for instance because its disk is full: the
// worker sends it again from Size, but not before Pause has passed.
type LogAck struct {
	Attempt muster.AttemptID `json:"attempt"`
	Size    int64            `json:"size"`
	Pause   muster.Duration  `json:"pause,omitempty"`
}

// Goodbye ends a session. Code tells the other side whether to come back:
// Unavailable means later, Conflict that another session of this worker took over, others never.
type Goodbye struct {
	Code    muster.Code `json:"code,omitempty"` // "" for an orderly end
	Message string      `json:"message,omitempty"`
}
