package muster

import (
	"slices"
	"strings"
)

// Explanation says why a task is in its state. The command line, the API and the
// dashboard show the same text.
type Explanation struct {
	Task           TaskID    `json:"task,omitzero"`   // absent in a plan
	Stage          string    `json:"stage,omitempty"` // in a plan: of its first task
	State          TaskState `json:"state"`
	Summary        string    `json:"summary"`            // one sentence
	Ahead          int       `json:"ahead"`              // queued tasks that go first
	Position       int       `json:"position,omitempty"` // in its queue, from 1
	AheadTruncated bool      `json:"beyond,omitempty"`   // there are more ahead: a long queue is not counted in full
	Start          Time      `json:"start,omitzero"`     // estimate, where there is history
	Nearest        string    `json:"nearest,omitempty"`  // the smallest change that would let it start
	NotUntil       Time      `json:"not_until,omitzero"` // a backoff ends
	Waiting        []string  `json:"waiting,omitempty"`  // stages that must succeed first
	Workers        []Verdict `json:"workers,omitempty"`  // at most 50, nearest first
	More           int       `json:"more,omitempty"`     // workers beyond those
}

// Unschedulable reports whether no worker that has joined can ever run the task.
func (x *Explanation) Unschedulable() bool {
	return strings.HasPrefix(x.Summary, SummaryUnschedulable) || x.Summary == SummaryNoWorker
}

// Verdict is the first filter that one worker fails, or Fits.
type Verdict struct {
	Worker WorkerID `json:"worker"`
	Name   string   `json:"name"`
	Fits   bool     `json:"fits"`
	Filter string   `json:"filter,omitempty"` // such as "memory"
	Why    string   `json:"why,omitempty"`    // all that it lacks, such as "needs 8 cpus, has 4; needs 64GiB memory, has 32GiB"
}

// Beginnings of a summary where no worker can ever run the task.
const (
	SummaryUnschedulable = "no worker can run it"
	SummaryNoWorker      = "no worker has joined"
)

// Limitations describes the missing features that matter while a task runs.
func Limitations(lacks []string) (texts []string) {
	for _, feature := range RunFeatures {
		if slices.Contains(lacks, feature) {
			texts = append(texts, limitationText[feature])
		}
	}
	return texts
}

var limitationText = map[string]string{
	FeatureCancel:    "cannot be stopped: a cancel takes effect at the server only",
	FeatureLogs:      "sends the log of a task only after the task has ended",
	FeatureArtifacts: "sends no artifacts",
	FeatureExec:      "runs no commands in running tasks: muster exec, shell and cp do not work",
}
