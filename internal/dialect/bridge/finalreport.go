package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// FinalReport is the end of a job.
type FinalReport struct {
	State muster.JobState
	Job   muster.Job    // zero if Muster refused the job
	Tasks []muster.Task // up to MaxReportedTasks, by number; none if Muster refused the job

	rejection string
	client    *client.Client
}

// Succeeded reports whether all tasks succeeded.
func (e *FinalReport) Succeeded() bool { return e.State == muster.JobSucceeded }

// Task returns the first task that did not succeed, else the last task, nil if there is none.
func (e *FinalReport) Task() *muster.Task {
	for i := range e.Tasks {
		if t := &e.Tasks[i]; t.State != muster.Succeeded && t.State != muster.Skipped {
			return t
		}
	}
	if len(e.Tasks) == 0 {
		return nil
	}
	return &e.Tasks[len(e.Tasks)-1]
}

// Result returns the result of Task, nil for none.
func (e *FinalReport) Result() json.RawMessage {
	if t := e.Task(); t != nil {
		return t.Result
	}
	return nil
}

// Message returns why the job did not succeed, "" if it did.
func (e *FinalReport) Message() string {
	switch t := e.Task(); {
	case e.rejection != "":
		return e.rejection
	case e.Succeeded():
		return ""
	case t == nil:
		return "the job ended as " + string(e.State)
	case t.Message != "":
		return t.Message
	case t.ExitCode != nil:
		return fmt.Sprintf("the task ended with exit code %d", *t.ExitCode)
	case t.Reason != "":
		return "the task ended: " + string(t.Reason)
	default:
		return "the task ended as " + t.State.String()
	}
}

// LogTail returns at most n last lines of a stream of Task's output; "" means all streams.
func (e *FinalReport) LogTail(ctx context.Context, stream string, n int) ([]string, error) {
	t := e.Task()
	if t == nil || t.Attempt == 0 {
		return nil, nil
	}
	var text []byte
	for line, err := range e.client.Logs(ctx, t.ID, client.LogOptions{Stream: stream, Tail: n}) {
		if err != nil {
			return nil, err
		}
		if text = append(text, line.Data...); len(text) > 2*maxTail {
			text = slices.Clone(text[len(text)-maxTail:])
		}
	}
	last := strings.TrimRight(strings.ToValidUTF8(string(text[max(0, len(text)-maxTail):]), "\uFFFD"), "\n")
	if last == "" {
		return nil, nil
	}
	lines := strings.Split(last, "\n")
	return lines[max(0, len(lines)-n):], nil
}

const maxTail = 1 << 20 // bytes of LogTail

// Download writes an artifact of a task to w. It returns an error if the content does not match its hash.
func (e *FinalReport) Download(ctx context.Context, t *muster.Task, a muster.Artifact, w io.Writer) error {
	return e.client.ReadArtifact(ctx, t.ID, a, w)
}
