package link

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
)

// Version is the protocol version of this build. A Hello with another
// one is refused with a Goodbye that names both.
const Version = 9

// MaxOwnKinds is the most bytes of a worker's own definitions of kinds.
const MaxOwnKinds = 1 << 20

// MaxFrame is the most bytes of one frame. A longer one ends the session.
const MaxFrame = 8 << 20

// MaxLogs is the most log bytes in one frame.
const MaxLogs = 1 << 20

// maxGPUs is the most devices in one list: of a machine, of a load, of a Heal.
const maxGPUs = 1024

// MinHeartbeat and MaxHeartbeat bound the interval that a worker may ask for.
const (
	MinHeartbeat = muster.Duration(time.Second)
	MaxHeartbeat = muster.Duration(5 * time.Minute)
)

// HealAll in ToWorker.Heal means every quarantined GPU of the worker.
const HealAll = "all"

// MaxGroupSpecs is how many group specs a session remembers: a worker may forget a
// GroupSpec after that many later ones.
const MaxGroupSpecs = 1000

// MaxNewGroupSpecs is the most group specs in one frame, and the number of latest ones that the server refers to.
// It is less than MaxGroupSpecs because the specs of a frame precede its assignments, and may make
// the worker forget its oldest ones.
const MaxNewGroupSpecs = MaxGroupSpecs / 2

// ToServer is one frame from a worker, with all messages that waited. The first frame of a
// session has Hello, later ones must not. Messages take effect in the order of the fields.
type ToServer struct {
	Seq      uint64             `json:"seq"` // from 1, without gaps
	Hello    *Hello             `json:"hello,omitempty"`
	Ready    *Ready             `json:"ready,omitempty"`
	Offer    *muster.Offer      `json:"offer,omitempty"` // replaces that of Hello
	Accepted []muster.AttemptID `json:"accepted,omitempty"`
	Rejected []Rejected         `json:"rejected,omitempty"`
	Started  []Started          `json:"started,omitempty"`
	Progress []muster.Progress  `json:"progress,omitempty"`
	Logs     []LogChunk         `json:"logs,omitempty"`
	Saved    []Saved            `json:"saved,omitempty"`
	Finished []muster.Report    `json:"finished,omitempty"` // repeated in a new session until FinishedAck
	Renew    *Renew             `json:"renew,omitempty"`
	Ping     bool               `json:"ping,omitempty"`
	Pong     bool               `json:"pong,omitempty"`    // answers ToWorker.Ping at once
	Goodbye  *Goodbye           `json:"goodbye,omitempty"` // the last frame
}

// ToWorker is one frame from the server. The first one of a session has Welcome
// or Goodbye; a Ping may come before it.
type ToWorker struct {
	Seq         uint64             `json:"seq"` // from 1, without gaps
	Welcome     *Welcome           `json:"welcome,omitempty"`
	Specs       []GroupSpec        `json:"specs,omitempty"`
	Assign      []Assign           `json:"assign,omitempty"`
	Cancel      []Cancel           `json:"cancel,omitempty"`
	FinishedAck []muster.AttemptID `json:"finished_ack,omitempty"` // the report is on disk, or permanently refused
	LogAck      []LogAck           `json:"log_ack,omitempty"`
	Drain       bool               `json:"drain,omitempty"` // no work is left: exit
	Heal        []string           `json:"heal,omitempty"`  // UUIDs of quarantined GPUs to check again; "all" means each
	Exec        []Exec             `json:"exec,omitempty"`
	Approved    bool               `json:"approved,omitempty"` // ends Welcome.Pending
	Ping        bool               `json:"ping,omitempty"`     // another process uses the worker's identity: is this one alive?
	Pong        bool               `json:"pong,omitempty"`
	Goodbye     *Goodbye           `json:"goodbye,omitempty"` // the last frame
}

// Hello describes the worker, its machine and the attempts that it holds.
type Hello struct {
	Version int               `json:"version"`
	Worker  muster.WorkerID   `json:"worker"` // from Joined
	Name    string            `json:"name"`
	Build   string            `json:"build"`
	Labels  map[string]string `json:"labels,omitempty"`
	Price   float64           `json:"price,omitempty"`
	muster.Offer
	Heartbeat muster.Duration    `json:"heartbeat,omitempty"` // interval that it asks for: MinHeartbeat to MaxHeartbeat, or 0 for the server's
	Address   string             `json:"address,omitempty"`   // at which other workers reach it; "" means RemoteIP
	Held      []muster.AttemptID `json:"held,omitempty"`      // running, or finished with a report that is not acknowledged
	Stale     []muster.AttemptID `json:"stale,omitempty"`     // others that still have processes, or log bytes to send

	Constrained string `json:"constrained,omitempty"` // why it takes no tasks, as in Ready; "" if it does

	RemoteIP string `json:"-"` // see ServerConn; set by Serve
	// Alive asks the worker whether it still waits for the welcome, and returns an Unavailable error if it does not answer before ctx ends or
	// has closed the connection. SessionHandler.Open may call it once; set by Serve.
	Alive     func(ctx context.Context) error `json:"-"`
	ServerURL string                          `json:"-"` // at which its tasks reach the server, set by the server's handler; "" if unknown
	Enrolment Enrolment                       `json:"-"` // set by the server's handler
}

// Welcome answers Hello.
type Welcome struct {
	Heartbeat muster.Duration    `json:"heartbeat"`      // send Renew at least this often
	Keep      []LogAck           `json:"keep,omitempty"` // held attempts to continue, and what the server has of their logs
	Stop      []muster.AttemptID `json:"stop,omitempty"` // held attempts to kill and forget, without a report

	SharedName bool `json:"shared_name,omitempty"` // another connected worker has the same name
	Pending    bool `json:"pending,omitempty"`     // the worker gets no tasks until it is Approved
}

// Ready reports whether the worker takes tasks.
type Ready struct {
	Constrained string `json:"constrained,omitempty"` // why not; "" if it does
}

// Saved reports that the attempt's checkpoint directory is on the server as the muster.Tree
// with this hash. Only the last one counts; it is repeated in a new session.
type Saved struct {
	Attempt muster.AttemptID `json:"attempt"`
	SHA256  string           `json:"sha256"`
}

// GroupSpec has what the tasks of one stage have in common. It precedes, in the
// same session, every Assign that refers to it.
type GroupSpec struct {
	Ref  int             `json:"ref"` // unique in this session, from 1
	UID  string          `json:"uid"` // of the job; see muster.Job
	Name string          `json:"name"`
	Spec muster.TaskSpec `json:"spec"`

	Project string `json:"project,omitempty"` // of the job; "" is one project, too

	Signature *muster.Signature `json:"signature,omitempty"` // of the job
}

// Assign offers an attempt. The worker answers Accepted or Rejected; Started and
// Finished imply Accepted.
type Assign struct {
	Attempt muster.AttemptID   `json:"attempt"`
	Ref     int                `json:"ref"`
	Element string             `json:"element,omitempty"` // $MUSTER_INDEX of an array's element, "lr=0.1,seed=2" of a matrix's
	Spec    *muster.TaskSpec   `json:"spec,omitempty"`    // replaces the group's if that has ${index} or ${matrix…}
	Grant   muster.Grant       `json:"grant,omitzero"`
	Inputs  []muster.InputFile `json:"inputs,omitempty"`
	// Secrets has the values of the spec's secrets, once for each name. The worker writes them to no file but those that the spec names.
	Secrets []muster.SecretValue `json:"secrets,omitempty"`

	Checkpoint string             `json:"checkpoint,omitempty"` // SHA-256 of the Tree that an earlier attempt saved
	Gang       *muster.Membership `json:"gang,omitempty"`
}

// Cancel ends an attempt. With Drop the server expects no report. With the reason
// Preempted a task with a checkpoint gets the checkpoint's signal and grace period.
type Cancel struct {
	Attempt muster.AttemptID `json:"attempt"`
	Reason  muster.Reason    `json:"reason,omitempty"`
	Drop    bool             `json:"drop,omitempty"`
}

// Exec asks the worker to open a connection (ExecDialer) for a command in an attempt, or for a copy from or to its folders: see package
// execwire. It changes nothing of the attempt.
type Exec struct {
	ID      string           `json:"id"` // of the connection: 16 to 64 letters, digits, - or _
	Attempt muster.AttemptID `json:"attempt"`
}

// Rejected reports that the worker will not run an attempt.
type Rejected struct {
	Attempt     muster.AttemptID `json:"attempt"`
	Message     string           `json:"message"`
	Constrained bool             `json:"constrained,omitempty"` // the worker takes no tasks for now; once it is Ready, the same task may be assigned again
	Final       bool             `json:"final,omitempty"`       // the worker will not run this task later either
}

// Started reports that an attempt's process runs, or that its work has begun.
type Started struct {
	Attempt muster.AttemptID `json:"attempt"`
	At      muster.Time      `json:"at"`
}

// Renew renews the leases of all attempts in Held.
type Renew struct {
	Held []muster.AttemptID `json:"held,omitempty"`
	Load *muster.Load       `json:"load,omitempty"`
}

// LogChunk is a range of an attempt's log, as bytes, or the samples of a range that the worker has dropped (tasklog.Chunk).
type LogChunk struct {
	Attempt muster.AttemptID `json:"attempt"`
	Offset  int64            `json:"offset"`
	Data    []byte           `json:"data"`
	Segment int64            `json:"segment,omitempty"` // where the segment of the range begins; 0 for the log's head
	Kept    int64            `json:"kept,omitempty"`    // where the first segment begins that the worker has; 0 if it dropped none
	To      int64            `json:"to,omitempty"`      // where the dropped range ends; 0 if Data is the range
}

// LogAck has how many bytes of a log the server has: the worker continues from there. It
// answers every LogChunk, and repairs gaps. Pause is set if the server could
// not store the rest, for instance because its disk is full: the
// worker sends it again from Size after Pause.
type LogAck struct {
	Attempt muster.AttemptID `json:"attempt"`
	Size    int64            `json:"size"`
	Pause   muster.Duration  `json:"pause,omitempty"`
}

// Goodbye ends a session. Code determines whether the worker reconnects:
// Unavailable means later, Conflict that another session of this worker replaced it, others never.
type Goodbye struct {
	Code    muster.Code `json:"code,omitempty"` // "" for an orderly end
	Message string      `json:"message,omitempty"`
}
