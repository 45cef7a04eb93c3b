package wire

import (
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// The events of a stream of output, or of usage. The id of an event is what
// Last-Event-EventID resumes after.
const (
	LogOutput  = "output"  // data is a LogLine
	LogSample  = "sample"  // data is a muster.Sample
	LogAttempt = "attempt" // data is a LogBoundary: what follows is of this attempt
	LogEnd     = "end"     // data is a LogBoundary: nothing follows
)

// The streams of a log.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system" // a word from Muster itself
)

// LogLine is one record of an attempt's output: a whole line with its end, or a
// part of a long or unfinished one. Text is set if the bytes are UTF-8, else
// Bytes.
type LogLine struct {
	Stream string      `json:"stream" enum:"stdout,stderr,system"`
	At     muster.Time `json:"at"`
	Text   string      `json:"text,omitempty"`
	Bytes  []byte      `json:"bytes,omitempty" doc:"in place of text, where the output is not UTF-8"`
}

// NewLogLine makes a line of output bytes.
func NewLogLine(stream string, at muster.Time, data []byte) LogLine {
	l := LogLine{Stream: stream, At: at}
	if utf8.Valid(data) {
		l.Text = string(data)
	} else {
		l.Bytes = data
	}
	return l
}

// Data returns the output bytes.
func (l LogLine) Data() []byte {
	if l.Bytes != nil {
		return l.Bytes
	}
	return []byte(l.Text)
}

// LogBoundary opens and closes an attempt in a stream.
type LogBoundary struct {
	Attempt   int              `json:"attempt"`
	State     muster.TaskState `json:"state,omitempty" doc:"of the task, in the end event"`
	Truncated bool             `json:"truncated,omitempty" doc:"the worker was lost before it had sent the rest"`
}
