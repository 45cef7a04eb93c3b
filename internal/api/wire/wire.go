// Package wire defines the bodies of the HTTP API that package muster does not have,
// for the server and its clients. The OpenAPI document is generated from these types and
// their doc tags.
package wire

import (
	"net/netip"

	"encoding/json"

	"github.com/muster-dev/muster"
)

// Prefix is the path of the API.
const Prefix = "/api/v1"

// Headers that are not defined by HTTP.
const (
	HeaderIdempotency = "Idempotency-Key"
	HeaderOffset      = "Upload-Offset" // of a blob's upload: bytes that the server has
	HeaderLastEvent   = "Last-Event-ID"
)

// MaxMissing is the maximum number of hashes of one Missing request, MaxPage that of
// rows of a page.
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

// Attempts are the attempts of a task.
type Attempts struct {
	Attempts []muster.Attempt `json:"attempts" nullable:"false"`
}

// Late are the late reports of a job.
type Late struct {
	Late []muster.LateReport `json:"late" nullable:"false"`
}

// Series is the usage of an attempt over time.
type Series struct {
	Task    muster.TaskID    `json:"task"`
	Attempt int              `json:"attempt" doc:"0 means none yet"`
	State   muster.TaskState `json:"state" doc:"of the task"`
	Usage   *muster.Usage    `json:"usage,omitempty" doc:"as reported at the end of the attempt, else derived from the samples so far"`
	SoFar   bool             `json:"so_far,omitempty" doc:"usage is derived from the samples, because it was not reported (yet), and has no cost"`
	Taken   int              `json:"taken" doc:"number of recorded samples; samples has fewer if they were merged"`
	Samples []muster.Sample  `json:"samples" nullable:"false"`
	Next    string           `json:"next" doc:"Last-Event-ID with which server-sent events resume after these samples"`
}

// Artifacts are the files of an attempt.
type Artifacts struct {
	Artifacts []muster.Artifact `json:"artifacts" nullable:"false"`
}

// Workers are all workers, or a page of them.
type Workers struct {
	Workers []muster.Worker `json:"workers" nullable:"false"`
	Next    string          `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// Kind is one kind of tasks.
type Kind struct {
	Name       string            `json:"name"`
	About      string            `json:"about,omitempty" doc:"one sentence"`
	Own        bool              `json:"own,omitempty" doc:"a custom kind, added by owners of workers"`
	Runtime    string            `json:"runtime,omitempty" doc:"Python runtime that its program uses"`
	Run        string            `json:"run" enum:"no,may,must" doc:"whether a task of this kind has a command"`
	Input      json.RawMessage   `json:"input,omitempty" doc:"JSON Schema (2020-12) of the input; absent if it takes none"`
	Resources  *muster.Request   `json:"resources,omitempty" doc:"default resources of its tasks"`
	Checkpoint bool              `json:"checkpoint,omitempty" doc:"it saves checkpoints and resumes from them on any worker"`
	MergeKey   []string          `json:"merge_key,omitempty" doc:"input fields: tasks with equal values share a loaded model"`
	Operation  bool              `json:"operation,omitempty" doc:"kind custom can also run it, by its name"`
	Offered    int               `json:"offered" doc:"number of connected workers that offer it"`
	Away       int               `json:"away,omitempty" doc:"number of disconnected workers that offered it"`
	Differ     int               `json:"differ,omitempty" doc:"number of workers, connected or not, with another definition of this name"`
	Workers    []muster.WorkerID `json:"workers,omitempty" doc:"connected workers that offer it; only if a single kind is requested"`
}

// Kinds are all kinds of tasks, by name.
type Kinds struct {
	Kinds []Kind `json:"kinds" nullable:"false"`
}

// Plan explains where the first task of each stage would run.
type Plan struct {
	Stages []muster.Explanation `json:"stages" nullable:"false"`
}

// Selection selects tasks of a job.
type Selection struct {
	Tasks string `json:"tasks,omitempty" doc:"task numbers and ranges; absent means all" example:"0-9,12"`
}

// JobEdit changes a job that has not ended. Absent properties do not change.
type JobEdit struct {
	Priority *int  `json:"priority,omitempty" minimum:"0" maximum:"100" doc:"tasks of jobs with a higher priority start first"`
	Held     *bool `json:"held,omitempty" doc:"whether its tasks are not started for now; running tasks continue"`
}

// Drain has the options of a drain.
type Drain struct {
	Deadline *muster.Duration `json:"deadline,omitempty" doc:"from now; tasks that still run then are stopped and continue on other workers, from their checkpoints if they have any; 0 means at once, absent means never"`
}

// Pause has the options of a pause.
type Pause struct {
	For *muster.Duration `json:"for,omitempty" doc:"time until it is resumed; absent means that it must be resumed by request"`
}

// Heal selects quarantined GPUs of a worker.
type Heal struct {
	GPUs []string `json:"gpus,omitempty" maxItems:"1024" doc:"by UUID or index; absent means all quarantined ones"`
}

// Key is an API key without its secret.
type Key struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Role      string          `json:"role" enum:"admin,operator,submitter,viewer,worker,join"`
	Project   string          `json:"project,omitempty" doc:"the only project that it can access; absent means all"`
	Job       muster.JobID    `json:"job,omitempty" doc:"the only job that it can read; absent means all"`
	Worker    muster.WorkerID `json:"worker,omitempty" doc:"the worker whose key it is"`
	Prefix    string          `json:"prefix,omitempty" doc:"how the secret begins, for recognition; absent for secrets that were chosen by hand, for keys of older versions, and for workers, which have a public key" example:"mst_viewer_l3me"`
	RotatedTo string          `json:"rotated_to,omitempty" doc:"the key whose old secret this is; it works like that key until it expires"`
	CreatedAt muster.Time     `json:"created_at,omitzero"`
	ExpiresAt muster.Time     `json:"expires_at,omitzero" doc:"absent means never"`
	Uses      *int            `json:"uses,omitempty" doc:"how many workers may still join by it; absent means any number"`
	Tags      []string        `json:"tags,omitempty" doc:"tags that the workers have that join by it, and that are reserved for them"`
	Addresses []netip.Prefix  `json:"addresses,omitempty" doc:"networks from which it may be used; absent means all"`
	Approval  bool            `json:"approval,omitempty" doc:"the workers that join by it wait for approval; of the key of a worker: the worker does"`
	JoinedBy  string          `json:"joined_by,omitempty" doc:"the key by which the worker joined"`

	LastUsedAt   muster.Time `json:"last_used_at,omitzero" doc:"when a request or session with it began or ended, or now while one runs; after a crash of the server up to a minute too early"`
	LastUsedFrom string      `json:"last_used_from,omitempty" doc:"address of the client, or of the proxy before the server"`
}

// RotateKey asks for a new secret of a key.
type RotateKey struct {
	Overlap muster.Duration `json:"overlap,omitempty" doc:"how long old secrets still work: at most 30d; absent or 0 means that they end at once"`
	TTL     muster.Duration `json:"ttl,omitempty" doc:"new validity of the key; absent or 0 means that its expiry stays"`
}

// Keys are all API keys.
type Keys struct {
	Keys []Key `json:"keys" nullable:"false"`
}

// NewKey asks for an API key.
type NewKey struct {
	Name    string          `json:"name" minLength:"1" maxLength:"64"`
	Role    string          `json:"role" enum:"admin,operator,submitter,viewer,join"`
	Project string          `json:"project,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9_-]*$" patternDescription:"letters, digits, - and _" doc:"the only project that it can access; absent means that of the caller's key, or all"`
	TTL     muster.Duration `json:"ttl,omitempty" doc:"validity; absent or 0 means that it does not expire"`

	Uses      int      `json:"uses,omitempty" minimum:"0" maximum:"1000000" doc:"how many workers may join by it; absent or 0 means any number"`
	Tags      []string `json:"tags,omitempty" maxItems:"16" doc:"tags that the workers have that join by it, and that are reserved for them"`
	Addresses []string `json:"addresses,omitempty" maxItems:"32" doc:"networks from which the key, and those of the workers that join by it, may be used, such as 10.0.0.0/8; absent means all"`
	Approval  bool     `json:"approval,omitempty" doc:"the workers that join by it get no tasks until they are approved"`
}

// MadeKey is a new API key with its secret.
type MadeKey struct {
	Key    Key    `json:"key"`
	Secret string `json:"secret" doc:"bearer token; it is not returned again"`
}

// Whoami describes the caller and the server.
type Whoami struct {
	Key     string          `json:"key"`
	Name    string          `json:"name"`
	Role    string          `json:"role"`
	Project string          `json:"project,omitempty"`
	Job     muster.JobID    `json:"job,omitempty" doc:"the only job that the key can read; absent means all"`
	Worker  muster.WorkerID `json:"worker,omitempty"`

	Permissions []string    `json:"permissions" nullable:"false" doc:"permissions of the key, such as \"submit jobs\""`
	ExpiresAt   muster.Time `json:"expires_at,omitzero" doc:"expiry of the key; absent means never"`
	Version     string      `json:"version" doc:"version of the server"`
	Limited     bool        `json:"limited,omitempty" doc:"the key is a join token with uses, tags or approval, which gateways do not take"`
	Download    *Program    `json:"download,omitempty" doc:"platform of /download/muster; absent if the key cannot join workers"`
}

// Program is an executable of Muster.
type Program struct {
	OS   string `json:"os" doc:"operating system, as Go names it" example:"linux"`
	Arch string `json:"arch" doc:"architecture, as Go names it" example:"amd64"`
}

// Gateway is the state of a gateway to another system.
type Gateway struct {
	Name   string `json:"name" doc:"name of the system, such as qubix"`
	Status string `json:"status" doc:"ok, or why it cannot work now; the reason is shown only to requests with a valid key"`
}

// Hashes is a list of blobs, each by its SHA-256 in lower-case hex.
type Hashes struct {
	SHA256 []string `json:"sha256" maxItems:"10000" nullable:"false"`
}

// Missing is the hashes of blobs that the server does not have.
type Missing struct {
	Missing []string `json:"missing" nullable:"false"`
}

// BlobCheck is the result of the verification of a blob's file.
type BlobCheck struct {
	Verdict string `json:"verdict" enum:"intact,damaged,unreadable,unchecked" doc:"damaged: it was moved aside, upload it again; unreadable: the server's disk cannot read it now, try again later or upload it again; unchecked: try again later"`
}

// Problem is the body of every error, as application/problem+json (RFC 9457).
type Problem struct {
	Type   string              `json:"type" doc:"about:blank; see code"`
	Title  string              `json:"title" doc:"name of the HTTP status"`
	Status int                 `json:"status"`
	Detail string              `json:"detail" doc:"one sentence: what failed, where, and what to do"`
	Code   muster.Code         `json:"code" doc:"stable error code: match on this"`
	Errors []muster.FieldError `json:"errors,omitempty" doc:"errors in the document that was sent"`
}

// ElementSpec is the spec of one task.
type ElementSpec struct {
	Task     muster.TaskID   `json:"task"`
	Spec     muster.TaskSpec `json:"spec" doc:"with the values of this element of an array or matrix, and the results of other stages once they are known"`
	Resolved bool            `json:"resolved" doc:"false while references to unfinished stages are not resolved"`
	Image    string          `json:"image,omitempty" doc:"image of its container, by digest"`
}

// The types of TaskEvent.
const (
	EventCreated    = "created"
	EventQueued     = "queued"
	EventAssigned   = "assigned"
	EventStarted    = "started"
	EventCheckpoint = "checkpoint"
	EventEnded      = "ended"
	EventRetry      = "retry"
	EventFinished   = "finished"
)

// TaskEvent is one event of a task's lifecycle.
type TaskEvent struct {
	At      muster.Time     `json:"at"`
	Type    string          `json:"type" enum:"created,queued,assigned,started,checkpoint,ended,retry,finished" doc:"ended is about an attempt, finished about the task"`
	Attempt int             `json:"attempt,omitempty"`
	Worker  muster.WorkerID `json:"worker,omitempty"`
	Outcome muster.Outcome  `json:"outcome,omitempty" doc:"outcome of the ended attempt"`
	Reason  muster.Reason   `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// TaskEvents are the events of a task's lifecycle.
type TaskEvents struct {
	Events []TaskEvent `json:"events" nullable:"false" doc:"in order of time; only the last ones of a task with many attempts"`
}

// TaskTimeline derives the events of a task from its rows.
func TaskTimeline(t *muster.Task, attempts []muster.Attempt) []TaskEvent {
	var list []TaskEvent
	add := func(e TaskEvent) {
		if e.At != 0 {
			list = append(list, e)
		}
	}
	add(TaskEvent{At: t.CreatedAt, Type: EventCreated})
	queued := t.QueuedAt // when it was last queued
	for i := range attempts {
		a := &attempts[i]
		if queued != 0 && a.AssignedAt >= queued {
			add(TaskEvent{At: queued, Type: EventQueued})
			queued = 0
		}
		add(TaskEvent{At: a.AssignedAt, Type: EventAssigned, Attempt: a.ID.N, Worker: a.Worker})
		add(TaskEvent{At: a.StartedAt, Type: EventStarted, Attempt: a.ID.N, Worker: a.Worker})
		if a.Outcome != muster.AttemptOpen {
			add(TaskEvent{At: a.FinishedAt, Type: EventEnded, Attempt: a.ID.N, Worker: a.Worker, Outcome: a.Outcome, Reason: a.Reason, Message: a.Message})
		}
	}
	add(TaskEvent{At: queued, Type: EventQueued})
	if !t.State.Final() {
		add(TaskEvent{At: t.NotBefore, Type: EventRetry, Message: "earliest start of the next attempt"})
		return list
	}
	e := TaskEvent{At: t.FinishedAt, Type: EventFinished, Reason: t.Reason, Message: t.State.String()}
	if t.Message != "" {
		e.Message += ": " + t.Message
	}
	add(e)
	return list
}

// History is the load of the fleet or of one worker over time.
type History struct {
	Worker muster.WorkerID       `json:"worker,omitempty"`
	From   muster.Time           `json:"from"`
	To     muster.Time           `json:"to"`
	Step   int                   `json:"step" doc:"seconds between two points; each point is the mean over the step that begins at its time"`
	Times  []muster.Time         `json:"times" nullable:"false"`
	Series map[string][]*float64 `json:"series" nullable:"false" doc:"one list per metric, with a number or null for each of times"`
}

// Metrics are what the attempts of a task reported over time.
type Metrics struct {
	Task     muster.TaskID    `json:"task"`
	State    muster.TaskState `json:"state" doc:"state of the task"`
	Attempts []AttemptMetrics `json:"attempts" nullable:"false" doc:"by number: the last 20, or the requested one"`
}

// AttemptMetrics are what one attempt reported over time.
type AttemptMetrics struct {
	Attempt     int            `json:"attempt"`
	Outcome     muster.Outcome `json:"outcome,omitempty" doc:"absent while it runs"`
	StartedAt   muster.Time    `json:"started_at,omitzero"`
	FinishedAt  muster.Time    `json:"finished_at,omitzero"`
	Taken       int            `json:"taken" doc:"number of recorded points; points has fewer if they were merged"`
	Points      []muster.Point `json:"points" nullable:"false" doc:"in order of time; a point has only values reported since the previous point. If there are more than requested, adjacent points are merged into two, with the minimum and the maximum of each metric"`
	Checkpoints []muster.Time  `json:"checkpoints" nullable:"false" doc:"times at which a checkpoint was saved, at most 1000"`
}

// CookieSession is the name of the cookie with a browser's API key.
const CookieSession = "muster_session"

// Session asks for a browser session.
type Session struct {
	Token string `json:"token" minLength:"1" maxLength:"256" doc:"an API key"`
}

// SignIn describes how users sign in other than with an API key.
type SignIn struct {
	Provider string `json:"provider,omitempty" doc:"name of the OpenID Connect provider; absent if there is none" example:"accounts.example.com"`
	Device   bool   `json:"device" doc:"whether programs without a browser can sign users in by a code that these enter elsewhere"`
}

// DeviceSignIn is a sign-in that the user completes in any browser.
type DeviceSignIn struct {
	Device    string          `json:"device" doc:"names the sign-in; keep it secret"`
	UserCode  string          `json:"user_code" doc:"what the user enters at url" example:"BDWP-HQPK"`
	URL       string          `json:"url" example:"https://accounts.example.com/device"`
	FullURL   string          `json:"full_url,omitempty" doc:"url with the code"`
	Interval  muster.Duration `json:"interval" doc:"pause between two questions whether the user has signed in"`
	ExpiresAt muster.Time     `json:"expires_at"`
}

// DeviceHandle names a sign-in with a code.
type DeviceHandle struct {
	Device string `json:"device" minLength:"1" maxLength:"16384"`
}

// DeviceResult is the key of a user who has signed in.
type DeviceResult struct {
	Pending bool   `json:"pending" doc:"the user has not signed in yet: ask again after the interval"`
	Key     *Key   `json:"key,omitempty"`
	Secret  string `json:"secret,omitempty" doc:"bearer token; it is not returned again"`
}

// NewShare asks for a link to a job.
type NewShare struct {
	TTL muster.Duration `json:"ttl,omitempty" doc:"validity of the link: at most 30d; default: 24h"`
}

// Share is a link that lets anyone read one job until it expires.
type Share struct {
	URL       string      `json:"url" doc:"link, relative to the server's root: the key is in its fragment, which browsers do not send" example:"/share#mst_viewer_…"`
	Secret    string      `json:"secret" doc:"key of the link; it is not returned again"`
	Key       string      `json:"key" doc:"id of the key"`
	ExpiresAt muster.Time `json:"expires_at"`
}

// Notifications are the notifications of a project.
type Notifications struct {
	Notify []muster.Notify `json:"notify" maxItems:"10" nullable:"false" doc:"secrets are returned encrypted, and may be sent back encrypted"`
}

// ProjectNotify is the notifications of a project and their signing secret, for administrators.
type ProjectNotify struct {
	Project string `json:"project"`
	Notifications
	Secret string `json:"signing_secret" doc:"signs the requests of notifications without their own secret (Standard Webhooks)"`
}

// Secret describes a secret of a project. No answer has its value.
type Secret struct {
	Project   string      `json:"project"`
	Name      string      `json:"name"`
	Version   int         `json:"version" doc:"how often it was set"`
	Workers   []string    `json:"workers,omitempty" doc:"only workers with all of these tags are given it"`
	UpdatedAt muster.Time `json:"updated_at"`
	UpdatedBy string      `json:"updated_by" doc:"name of the key that set it"`
	Problem   string      `json:"problem,omitempty" doc:"why the server cannot read the value; tasks that name the secret wait"`
}

// Secrets are the secrets of a project, by name.
type Secrets struct {
	Secrets []Secret `json:"secrets" nullable:"false"`
}

// NewSecret is the value of a secret to set.
type NewSecret struct {
	Value   string   `json:"value" minLength:"8" maxLength:"65536" doc:"at least 8 bytes, without white space around them, and at most 64 KiB" writeOnly:"true"`
	Workers []string `json:"workers,omitempty" maxItems:"16" doc:"give it only to workers with all of these tags; default: to all"`
}

// Schedule submits a job at the times of a cron expression.
type Schedule struct {
	Project   string        `json:"project"`
	Name      string        `json:"name"`
	Cron      string        `json:"cron" example:"30 2 * * *"`
	Timezone  string        `json:"timezone" example:"Europe/Berlin" doc:"of the IANA database"`
	Missed    string        `json:"missed" enum:"skip,run-once,run-all" doc:"what happens to runs whose time passed while the server did not run"`
	Overlap   string        `json:"overlap" enum:"allow,forbid,replace" doc:"what happens at the time of a run if earlier jobs have not ended"`
	Paused    bool          `json:"paused"`
	Owner     string        `json:"owner" doc:"id of the key whose rights the jobs have: the one that created the schedule"`
	OwnerName string        `json:"owner_name"`
	CreatedAt muster.Time   `json:"created_at"`
	UpdatedAt muster.Time   `json:"updated_at"`
	Next      []muster.Time `json:"next" nullable:"false" doc:"the next 3 runs; empty while it is paused"`
	Problem   string        `json:"problem,omitempty" doc:"why runs are or will be refused; not in lists"`
	Runs      []ScheduleRun `json:"runs,omitempty" doc:"the last 100, the newest first; not in lists"`
	Spec      *muster.Spec  `json:"spec,omitempty" doc:"of the jobs; not in lists"`
}

// ScheduleRun is what was decided about a run, or about several that were missed.
type ScheduleRun struct {
	N         int          `json:"n" doc:"number of the decision, from 1"`
	At        muster.Time  `json:"at" doc:"the time for which it was planned; of several, the last"`
	DecidedAt muster.Time  `json:"decided_at"`
	Outcome   string       `json:"outcome" enum:"started,skipped,refused"`
	Manual    bool         `json:"manual,omitempty" doc:"a user started it"`
	Job       muster.JobID `json:"job,omitempty"`
	Message   string       `json:"message,omitempty" doc:"why no job was started"`
}

// Schedules are schedules, by project and name.
type Schedules struct {
	Schedules []Schedule `json:"schedules" nullable:"false"`
}

// NewSchedule is a schedule to create or to replace.
type NewSchedule struct {
	Name     string      `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" patternDescription:"letters, digits and . _ -" example:"nightly"`
	Cron     string      `json:"cron" maxLength:"200" example:"30 2 * * *" doc:"five fields: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly"`
	Timezone string      `json:"timezone,omitempty" maxLength:"200" example:"Europe/Berlin" doc:"of the IANA database; default: UTC"`
	Missed   string      `json:"missed,omitempty" enum:"skip,run-once,run-all" default:"run-once" doc:"what happens to runs whose time passed while the server did not run; run-all starts the last 100, and needs overlap: allow"`
	Overlap  string      `json:"overlap,omitempty" enum:"allow,forbid,replace" default:"allow" doc:"what happens at the time of a run if earlier jobs have not ended"`
	Paused   bool        `json:"paused,omitempty" doc:"create it without runs until it is resumed"`
	Replace  bool        `json:"replace,omitempty" doc:"replace the schedule with the name if there is one"`
	Spec     muster.Spec `json:"spec" doc:"of the jobs: without a signature, in the project of the schedule"`
}

// Delivery is one request to a webhook, which may take several attempts.
type Delivery struct {
	ID         string          `json:"id" doc:"webhook-id of the request"`
	Project    string          `json:"project"`
	Job        muster.JobID    `json:"job,omitempty" doc:"absent for a test"`
	Event      string          `json:"event" enum:"job.succeeded,job.failed,job.timed_out,job.cancelled,job.waiting_long,test"`
	Host       string          `json:"host" doc:"host and port of the URL; the rest may be secret"`
	Preset     string          `json:"preset,omitempty"`
	State      string          `json:"state" enum:"pending,delivered,failed" doc:"failed means that no more attempts are made"`
	Attempts   int             `json:"attempts"`
	Status     int             `json:"status,omitempty" doc:"HTTP status of the last attempt; absent without an answer"`
	Error      string          `json:"error,omitempty" doc:"why the last attempt failed"`
	Took       muster.Duration `json:"took,omitempty" doc:"duration of the last attempt"`
	CreatedAt  muster.Time     `json:"created_at"`
	TriedAt    muster.Time     `json:"tried_at,omitzero" doc:"time of the last attempt"`
	NextAt     muster.Time     `json:"next_at,omitzero" doc:"time of the next attempt"`
	FinishedAt muster.Time     `json:"finished_at,omitzero"`
}

// Deliveries is a page of the delivery log.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries" nullable:"false"`
	Next       string     `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// TestNotify selects the notifications to test.
type TestNotify struct {
	URL string `json:"url,omitempty" maxLength:"2048" doc:"URL of one of the project's notifications; absent means all"`
}
