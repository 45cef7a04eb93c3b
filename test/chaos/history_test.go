//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// History is all that a run recorded. It is plain data: a failing run keeps it as
// history.json, and -history checks such a file again.
type History struct {
	Seed     uint64            `json:"seed"`
	Faults   []DoneFault       `json:"faults"`
	Jobs     []Submission      `json:"jobs"`
	Effects  map[string]string `json:"effects"` // the effect file of each task, by "JOB NAME.STAGE.INDEX"
	Watchers [][]muster.Event  `json:"watchers"`
	Workers  []WorkerSample    `json:"workers"`
	Final    []FinalJob        `json:"final"`
	Reloaded []FinalJob        `json:"reloaded"` // the same after a last kill -9 of the server, without logs and artifacts
	Removed  []FinalJob        `json:"removed"`  // jobs as they were when they had ended, before a client removed them
	Missing  []string          `json:"missing"`  // blobs that a job refers to, and that the server does not have
	Leftover []string          `json:"leftover"` // what the server has of removed jobs, and blobs to which nothing refers
	Left     []string          `json:"left"`     // what was found after all had ended
	Exits    []string          `json:"exits"`    // processes of the program that ended unexpectedly, or did not end on a signal
	Calm     int64             `json:"calm"`     // when all faults had ended, in nanoseconds as all times of effects
}

// DoneFault is a fault that was carried out.
type DoneFault struct {
	Target string `json:"target"`
	Kind   string `json:"kind"`
	From   int64  `json:"from"`
	To     int64  `json:"to"`
}

// Submission is one job that a client tried to submit, with what must become of it.
type Submission struct {
	Name    string         `json:"name"`    // unique
	Acks    []muster.JobID `json:"acks"`    // an answer each: all must name one job
	Refused []string       `json:"refused"` // a code and an error each
	Cancel  int64          `json:"cancel"`  // when the cancellation was acknowledged, or 0
	Stages  []Want         `json:"stages"`

	Project     string `json:"project"`
	Kept        int64  `json:"kept"`         // when keep was acknowledged, or 0
	Unkept      bool   `json:"unkept"`       // unkeep was requested
	RemovalSent bool   `json:"removal_sent"` // a client has requested its removal
	Removed     int64  `json:"removed"`      // when that was acknowledged, or 0
}

// Want is what must become of the tasks of one stage, if the job is not cancelled.
type Want struct {
	Stage    string           `json:"stage"`
	Size     int              `json:"size"`
	Many     bool             `json:"many"` // an array or a gang
	State    muster.TaskState `json:"state"`
	Reason   muster.Reason    `json:"reason"`
	Exit     int              `json:"exit"`
	Lines    int              `json:"lines"` // of output of each attempt that ended by itself
	Artifact bool             `json:"artifact"`
	From     string           `json:"from"` // stage whose artifacts and results each task took
	Gang     bool             `json:"gang"`
	Grace    time.Duration    `json:"grace"` // kill.grace
	Lease    time.Duration    `json:"lease"` // disconnect.grace
}

// WorkerSample is the state of a worker in the API.
type WorkerSample struct {
	At      int64  `json:"at"`
	Name    string `json:"name"`
	Running int    `json:"running"`
	Slots   int    `json:"slots"`
}

// FinalJob is a job as the API shows it at the end.
type FinalJob struct {
	Job   muster.Job  `json:"job"`
	Tasks []FinalTask `json:"tasks"`
}

// FinalTask is a task with all its attempts.
type FinalTask struct {
	Task     muster.Task       `json:"task"`
	Attempts []muster.Attempt  `json:"attempts"`
	Logs     map[int]string    `json:"logs"`      // stdout of each attempt
	Files    map[string]string `json:"artifacts"` // hashes of what was downloaded, by name
}

// Effect is one line that a task appended to its effect file.
type Effect struct {
	Kind    string
	Attempt int
	At      int64 // nanoseconds
	Detail  string
}

// parseEffects reads an effect file.
func parseEffects(text string) ([]Effect, error) {
	var list []Effect
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) < 3 || !strings.HasSuffix(line, "\n") {
			return list, fmt.Errorf("line %d is torn: %q", len(list)+1, line)
		}
		n, err := strconv.Atoi(f[1])
		var at int64
		var err2 error
		if f[2] != "" {
			at, err2 = strconv.ParseInt(f[2], 10, 64)
		} else if len(list) > 0 {
			at = list[len(list)-1].At // a signal ended the program that tells the time
		}
		if err != nil || err2 != nil {
			return list, fmt.Errorf("line %d is damaged: %q", len(list)+1, line)
		}
		e := Effect{Kind: f[0], Attempt: n, At: at}
		if len(f) == 4 {
			e.Detail = strings.TrimSpace(f[3])
		}
		list = append(list, e)
	}
	return list, nil
}

func (h *History) save(path string) error {
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func loadHistory(path string) (*History, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := &History{}
	return h, json.Unmarshal(b, h)
}

func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000") }
