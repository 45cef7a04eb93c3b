package wire

import "github.com/muster-dev/muster"

// Notifications are those of a project.
type Notifications struct {
	Notify []muster.Notify `json:"notify" maxItems:"10" nullable:"false" doc:"a secret is shown sealed, and may be sent back so"`
}

// ProjectNotify is what an administrator needs to know of a project's notifications.
type ProjectNotify struct {
	Project string `json:"project"`
	Notifications
	Secret string `json:"signing_secret" doc:"signs the requests of this project and its jobs that have no secret of their own (Standard Webhooks)"`
}

// Delivery is one request to a webhook, which may take several attempts.
type Delivery struct {
	ID         string          `json:"id" doc:"the webhook-id of the request"`
	Project    string          `json:"project"`
	Job        muster.JobID    `json:"job,omitempty" doc:"absent for a test"`
	Event      string          `json:"event" enum:"job.succeeded,job.failed,job.timed_out,job.cancelled,job.waiting_long,test"`
	Host       string          `json:"host" doc:"host and port of the URL, the rest of which may be a secret"`
	Preset     string          `json:"preset,omitempty"`
	State      string          `json:"state" enum:"pending,delivered,failed" doc:"failed: it was given up"`
	Attempts   int             `json:"attempts"`
	Status     int             `json:"status,omitempty" doc:"HTTP status of the last attempt; absent if there was no answer"`
	Error      string          `json:"error,omitempty" doc:"why the last attempt failed"`
	Took       muster.Duration `json:"took,omitempty" doc:"of the last attempt"`
	CreatedAt  muster.Time     `json:"created_at"`
	TriedAt    muster.Time     `json:"tried_at,omitzero" doc:"of the last attempt"`
	NextAt     muster.Time     `json:"next_at,omitzero" doc:"of the next attempt"`
	FinishedAt muster.Time     `json:"finished_at,omitzero"`
}

// Deliveries is a page of the delivery log.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries" nullable:"false"`
	Next       string     `json:"next,omitempty" doc:"cursor of the next page; absent at the end"`
}

// TestNotify picks what is tested.
type TestNotify struct {
	URL string `json:"url,omitempty" maxLength:"2048" doc:"one of the project's notifications; absent means all"`
}
