package logview

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// MaxText is the maximum size of the text of a match, in bytes.
	MaxText = 2 << 10
	// contextBefore is the number of bytes before the match in the text of a long record.
	contextBefore = 256
)

// Limits are the limits of one search.
type Limits struct {
	Matches int
	Bytes   int64 // of the log
	Time    time.Duration
}

// Match is a matching record.
type Match struct {
	Record        // without its data
	Text   string // valid UTF-8, at most MaxText bytes of the record, without its line end
}

// Result is the result of a search.
type Result struct {
	Matches   []Match // in the order of the search
	ScannedTo int64   // where the next search in the same direction continues
	Done      bool    // the search has reached the end in this direction
}

// Search searches the records that q selects, from q.Offset to the end of the log or, backward, to its beginning.
func Search(ctx context.Context, logs tasklog.Store, q Query, match Matcher, limits Limits) (Result, error) {
	l := log{logs: logs, id: q.Attempt}
	_, at, err := l.locate(ctx, q.Offset)
	if err != nil {
		return Result{}, err
	}
	var expired atomic.Bool
	defer time.AfterFunc(limits.Time, func() { expired.Store(true) }).Stop()
	s := search{log: l, query: q, match: match, limits: limits, start: at, expired: &expired}
	s.result = Result{Matches: []Match{}, ScannedTo: at}
	if q.Backward {
		err = s.backward(ctx)
	} else {
		err = s.forward(ctx)
	}
	return s.result, err
}

// search is one running search.
type search struct {
	log     log
	query   Query
	match   Matcher
	limits  Limits
	start   int64
	expired *atomic.Bool // limits.Time has passed
	result  Result
}

// exhausted reports whether the search has reached a limit.
func (s *search) exhausted() bool {
	return len(s.result.Matches) >= s.limits.Matches || max(s.result.ScannedTo-s.start, s.start-s.result.ScannedTo) >= s.limits.Bytes || s.expired.Load()
}

func (s *search) forward(ctx context.Context) error {
	s.result.Done = true
	return s.log.walk(ctx, s.start, func(r Record, after int64) error {
		if s.exhausted() {
			s.result.Done = false
			return ErrStop
		}
		if m, ok := s.matchRecord(r); ok {
			s.result.Matches = append(s.result.Matches, m)
		}
		s.result.ScannedTo = after
		return nil
	})
}

func (s *search) backward(ctx context.Context) error {
	for s.result.ScannedTo > 0 {
		start, err := s.log.stepBack(ctx, s.result.ScannedTo)
		if err != nil {
			return err
		}
		var matches []Match // of this part, in the order of the log: the last ones are kept
		remaining := s.limits.Matches - len(s.result.Matches)
		err = s.log.walk(ctx, start, func(r Record, after int64) error {
			if after > s.result.ScannedTo {
				return ErrStop
			}
			if m, ok := s.matchRecord(r); ok {
				if matches = append(matches, m); len(matches) > 2*remaining {
					matches = append(matches[:0], matches[len(matches)-remaining:]...)
					start = matches[0].Offset
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(matches) > remaining {
			matches = matches[len(matches)-remaining:]
			start = matches[0].Offset
		}
		slices.Reverse(matches)
		s.result.Matches = append(s.result.Matches, matches...)
		s.result.ScannedTo = start
		if s.exhausted() {
			break
		}
	}
	s.result.Done = s.result.ScannedTo == 0
	return nil
}

// matchRecord returns the match of a record; ok is false if it does not match.
func (s *search) matchRecord(r Record) (Match, bool) {
	if !s.query.Filter(r.Record) {
		return Match{}, false
	}
	// $ matches before the line end.
	line := bytes.TrimRight(r.Data, "\r\n")
	from, to, ok := s.match(line)
	if !ok {
		return Match{}, false
	}
	m := Match{Record: r, Text: excerpt(line, from, to)}
	m.Data = nil
	return m, true
}

// excerpt returns the part of a record around a match.
func excerpt(data []byte, from, to int) string {
	from, to = min(from, len(data)), min(to, len(data))
	if len(data) > MaxText {
		start := 0
		if to > MaxText {
			start = max(0, from-contextBefore)
		}
		data = data[start:min(len(data), start+MaxText)]
	}
	text := string(bytes.ToValidUTF8(data, []byte("\uFFFD")))
	for len(text) > MaxText { // replacement characters are longer
		text = string(bytes.ToValidUTF8([]byte(text[:MaxText]), nil))
	}
	return text
}
