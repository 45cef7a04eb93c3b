package wire

import (
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// The events of a stream of output or usage. A client resumes with the id of an event
// as Last-Event-ID.
const (
	LogOutput  = "output"  // data is a LogLine
	LogSample  = "sample"  // data is a muster.Sample
	LogAttempt = "attempt" // data is a LogBoundary: the following events are of this attempt
	LogRetry   = "retry"   // data is a LogBoundary: this attempt has ended, and the task will be tried again
	LogEnd     = "end"     // data is a LogBoundary: the stream ends
)

// The streams of a log.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system" // messages from Muster itself
)

// LogLine is one record of an attempt's output: a whole line with its end, or a
// part of a long or unfinished one. Text is set if the bytes are UTF-8, else
// Bytes.
type LogLine struct {
	Stream string      `json:"stream" enum:"stdout,stderr,system"`
	At     muster.Time `json:"at"`
	Text   string      `json:"text,omitempty"`
	Bytes  []byte      `json:"bytes,omitempty" doc:"set in place of text if the output is not UTF-8"`
}

// NewLogLine returns a line with output bytes.
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

// LogBoundary begins or ends an attempt in a stream.
type LogBoundary struct {
	Attempt   int              `json:"attempt"`
	State     muster.TaskState `json:"state,omitempty" doc:"state of the task, in the end event"`
	Truncated bool             `json:"truncated,omitempty" doc:"the worker was lost before it sent the rest"`
}

// LogRecord is a record of a log with its offset.
type LogRecord struct {
	Offset int64 `json:"offset" doc:"offset of the record in the log"`
	LogLine
}

// LogWindow is a part of an attempt's log.
type LogWindow struct {
	Attempt int         `json:"attempt" doc:"0 means none yet"`
	Size    int64       `json:"size" doc:"current size of the log in bytes, of all streams"`
	First   int64       `json:"first" doc:"offset at which the window begins: read backward from there for earlier records; 0 is the beginning of the log"`
	Last    int64       `json:"last" doc:"offset at which the window ends: read forward from there for later records"`
	Done    bool        `json:"done" doc:"nothing follows last: the attempt has ended and its log is complete"`
	Records []LogRecord `json:"records" nullable:"false" doc:"in the order of the log; may be empty in the middle of the log if no record is of the requested stream"`
}

// LogMatch is a record of a log that matches a search.
type LogMatch struct {
	Offset int64       `json:"offset" doc:"offset of the record in the log"`
	At     muster.Time `json:"at"`
	Stream string      `json:"stream" enum:"stdout,stderr,system"`
	Text   string      `json:"text" doc:"the record, or 2 KiB around the match if it is longer"`
}

// LogMatches is the result of one search.
type LogMatches struct {
	Attempt   int        `json:"attempt" doc:"0 means none yet"`
	Matches   []LogMatch `json:"matches" nullable:"false" doc:"in the order of the search: backward, last match first"`
	ScannedTo int64      `json:"scanned_to" doc:"offset at which a search in the same direction continues"`
	Done      bool       `json:"done" doc:"the search has reached the end in this direction"`
}
