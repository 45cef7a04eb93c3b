// Package wire has the bodies of the HTTP API that are not in Muster's
// vocabulary, for the server and its clients alike. What each field means is in the
// OpenAPI document that the server makes of these types.
package wire

import (
	"encoding/json"

	"github.com/muster-dev/muster"
)

// Prefix is where the API lives.
const Prefix = "/api/v1"

// The headers that are not HTTP's own.
const (
	HeaderIdempotency = "Idempotency-Key"
	HeaderOffset      = "Upload-Offset" // of a blob's upload: bytes that are there
	HeaderLastEvent   = "Last-Event-ID"
)

// MaxMissing is how many hashes one Missing request may have, and MaxPage how
// many rows a page.
const (
	MaxMissing = 10_000
	MaxPage    = 1_000
)

// Jobs is a page of jobs.
type Jobs struct {
	Jobs []muster.Job `json:"jobs" nullable:"false"`
	Next string       `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// Tasks is a page of tasks.
type Tasks struct {
	Tasks []muster.Task `json:"tasks" nullable:"false"`
	Next  string        `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// Attempts are all executions of a task.
type Attempts struct {
	Attempts []muster.Attempt `json:"attempts" nullable:"false"`
}

// Late are the late reports of a job.
type Late struct {
	Late []muster.LateReport `json:"late" nullable:"false"`
}

// Series is what an attempt used over time.
type Series struct {
	Task    muster.TaskID    `json:"task"`
	Attempt int              `json:"attempt" doc:"0 means that there was none yet"`
	State   muster.TaskState `json:"state" doc:"of the task"`
	Usage   *muster.Usage    `json:"usage,omitempty" doc:"as the attempt reported at its end, else what its samples tell so far"`
	SoFar   bool             `json:"so_far,omitempty" doc:"usage was not reported, or not yet: it follows from the samples, and has no cost"`
	Taken   int              `json:"taken" doc:"how many samples were taken; more than there are in samples if those are thinned"`
	Samples []muster.Sample  `json:"samples" nullable:"false"`
	Next    string           `json:"next" doc:"the Last-Event-ID with which server-sent events go on after these samples"`
}

// Artifacts are the files of an attempt.
type Artifacts struct {
	Artifacts []muster.Artifact `json:"artifacts" nullable:"false"`
}

// Workers is the fleet, or a page of it.
type Workers struct {
	Workers []muster.Worker `json:"workers" nullable:"false"`
	Next    string          `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// Kind is one kind of tasks, as the server knows it.
type Kind struct {
	Name       string            `json:"name"`
	About      string            `json:"about,omitempty" doc:"one sentence"`
	Own        bool              `json:"own,omitempty" doc:"it does not come with Muster: owners of workers added it"`
	Runtime    string            `json:"runtime,omitempty" doc:"the Python runtime that its program uses"`
	Run        string            `json:"run" enum:"no,may,must" doc:"whether a task of it has a command of its own"`
	Input      json.RawMessage   `json:"input,omitempty" doc:"JSON Schema (2020-12) of the input; absent: it takes none"`
	Resources  *muster.Request   `json:"resources,omitempty" doc:"what a task gets that asks for nothing of that sort"`
	Checkpoint bool              `json:"checkpoint,omitempty" doc:"it saves its state, and goes on from there on any worker"`
	MergeKey   []string          `json:"merge_key,omitempty" doc:"fields of the input: tasks that agree in them are served by one loaded model"`
	Operation  bool              `json:"operation,omitempty" doc:"kind custom runs it, too, by its name"`
	Offered    int               `json:"offered" doc:"how many workers that are there offer it"`
	Away       int               `json:"away,omitempty" doc:"how many more offered it when they were last there"`
	Differ     int               `json:"differ,omitempty" doc:"how many of both have another definition of this name"`
	Workers    []muster.WorkerID `json:"workers,omitempty" doc:"those that offer it and are there; only where one kind is shown"`
}

// Kinds are all kinds of tasks that a job may name, by name.
type Kinds struct {
	Kinds []Kind `json:"kinds" nullable:"false"`
}

// Plan says where the first task of each stage would run.
type Plan struct {
	Stages []muster.Explanation `json:"stages" nullable:"false"`
}

// Selection picks tasks of a job.
type Selection struct {
	Tasks string `json:"tasks,omitempty" doc:"task numbers and ranges; absent means all" example:"0-9,12"`
}

// Drain says how long a worker may finish what it has.
type Drain struct {
	Deadline *muster.Duration `json:"deadline,omitempty" doc:"from now; what still runs then is stopped and goes on elsewhere, from its checkpoint if it has one; 0 means at once, absent means never"`
}

// Pause says how long a worker is given nothing new.
type Pause struct {
	For *muster.Duration `json:"for,omitempty" doc:"then it is resumed; absent means until somebody does"`
}

// Heal names quarantined GPUs of a worker.
type Heal struct {
	GPUs []string `json:"gpus,omitempty" maxItems:"1024" doc:"by UUID or index; absent means all that are quarantined"`
}

// Key is what may be shown of an API key.
type Key struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Role      string          `json:"role" enum:"admin,submitter,viewer,worker,join"`
	Project   string          `json:"project,omitempty" doc:"the only project that it may touch; absent means all"`
	Job       muster.JobID    `json:"job,omitempty" doc:"the only job that it may read; absent means all"`
	Worker    muster.WorkerID `json:"worker,omitempty" doc:"for a worker's own key"`
	CreatedAt muster.Time     `json:"created_at,omitzero"`
	ExpiresAt muster.Time     `json:"expires_at,omitzero" doc:"absent means never"`
}

// Keys are all API keys.
type Keys struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// NewKey asks for an API key.
type NewKey struct {
	Name    string          `json:"name" minLength:"1" maxLength:"64"`
	Role    string          `json:"role" enum:"admin,submitter,viewer,join"`
	Project string          `json:"project,omitempty" maxLength:"64" doc:"the only project that it may touch; absent means all"`
	TTL     muster.Duration `json:"ttl,omitempty" doc:"how long it is valid; absent or 0 means for ever"`
}

// MadeKey is a new API key with its secret, which is shown this once.
type MadeKey struct {
	Key    Key    `json:"key"`
	Secret string `json:"secret" doc:"the bearer token; it is not shown again"`
}

// Whoami says who the caller is and what the server is.
type Whoami struct {
	Key     string          `json:"key"`
	Name    string          `json:"name"`
	Role    string          `json:"role"`
	Project string          `json:"project,omitempty"`
	Job     muster.JobID    `json:"job,omitempty" doc:"the only job that the key may read; absent means all"`
	Worker  muster.WorkerID `json:"worker,omitempty"`

	Permissions []string    `json:"permissions" nullable:"false" doc:"what the key may do, such as \"submit jobs\""`
	ExpiresAt   muster.Time `json:"expires_at,omitzero" doc:"of the key; absent means never"`
	Version     string      `json:"version" doc:"of the server"`
	Download    *Program    `json:"download,omitempty" doc:"what /download/muster answers; absent if the key may not join workers"`
}

// Program is an executable of Muster.
type Program struct {
	OS   string `json:"os" doc:"that it runs on, as Go names it" example:"linux"`
	Arch string `json:"arch" doc:"that it runs on, as Go names it" example:"amd64"`
}

// Gateway is how the gateway to another system is.
type Gateway struct {
	Name   string `json:"name" doc:"of the system, such as qubix"`
	Status string `json:"status" doc:"ok, or why it cannot work now; only requests with a valid key see the reason"`
}

// Hashes is a list of blobs, each by its SHA-256 in lower-case hex.
type Hashes struct {
	SHA256 []string `json:"sha256" maxItems:"10000" nullable:"false"`
}

// Missing is those of them that the server does not have.
type Missing struct {
	Missing []string `json:"missing" nullable:"false"`
}

// BlobCheck says what came of the check of a blob's file.
type BlobCheck struct {
	Verdict string `json:"verdict" enum:"intact,damaged,unreadable,unchecked" doc:"damaged: it is set aside, upload it again; unreadable: the server's disk cannot read it now, ask again later or upload it again; unchecked: ask again later"`
}

// Problem is the body of every error, as application/problem+json (RFC 9457).
type Problem struct {
	Type   string              `json:"type" doc:"about:blank: the code says more"`
	Title  string              `json:"title" doc:"the HTTP status in words"`
	Status int                 `json:"status"`
	Detail string              `json:"detail" doc:"one sentence: what, where, what to do"`
	Code   muster.Code         `json:"code" doc:"stable: match on this"`
	Errors []muster.FieldError `json:"errors,omitempty" doc:"what is wrong in the document that was sent"`
}
