package wire

import "github.com/muster-dev/muster"

// LogRecord is a record of a log with its place in it.
type LogRecord struct {
	Offset int64 `json:"offset" doc:"where in the log the record begins"`
	LogLine
}

// LogWindow is a part of an attempt's log.
type LogWindow struct {
	Attempt int         `json:"attempt" doc:"0 means that there was none yet"`
	Size    int64       `json:"size" doc:"bytes of the log now, of all streams"`
	First   int64       `json:"first" doc:"where the window begins: ask backward from there for what is before it; 0 is the beginning of the log"`
	Last    int64       `json:"last" doc:"where the window ends: ask forward from there for what follows"`
	Done    bool        `json:"done" doc:"nothing follows last, and nothing will: the attempt has ended and its log is complete"`
	Records []LogRecord `json:"records" nullable:"false" doc:"in the order of the log. A window in which no record is of the wanted stream is empty, also in the middle of the log"`
}

// LogMatch is a record of a log that matches a search.
type LogMatch struct {
	Offset int64       `json:"offset" doc:"where in the log the record begins"`
	At     muster.Time `json:"at"`
	Stream string      `json:"stream" enum:"stdout,stderr,system"`
	Text   string      `json:"text" doc:"the record, or 2 KiB of a longer one around what matches"`
}

// LogMatches is what one search found.
type LogMatches struct {
	Attempt   int        `json:"attempt" doc:"0 means that there was none yet"`
	Matches   []LogMatch `json:"matches" nullable:"false" doc:"in the order of the search: backward, the last one first"`
	ScannedTo int64      `json:"scanned_to" doc:"the offset at which a search in the same direction continues"`
	Done      bool       `json:"done" doc:"there is nothing more to search in this direction now"`
}
