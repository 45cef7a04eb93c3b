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
	// MaxText is the most of a record that a match shows, in bytes.
	MaxText = 2 << 10
	// beforeMatch is how much of a long record is shown before what matches.
	beforeMatch = 256
)

// Bounds are what one search may do at most.
type Bounds struct {
	Matches int
	Bytes   int64         // of the log
	Time    time.Duration // of its work
}

// Match is a record that matches.
type Match struct {
	Record        // without its data
	Text   string // valid UTF-8, at most MaxText bytes of the record, without its line end
}

// Found is what a search found.
type Found struct {
	Matches   []Match // in the order of the search
	ScannedTo int64   // the next search in the same direction goes on there
	Done      bool    // nothing is left in that direction
}

// Search looks through the records that q selects, from q.Offset to the end of the log or, backward, to its beginning.
func Search(ctx context.Context, logs tasklog.Store, q Query, match Matcher, most Bounds) (Found, error) {
	l := log{logs: logs, id: q.Attempt}
	total, err := logs.Size(ctx, q.Attempt)
	if err != nil {
		return Found{}, err
	}
	if q.Offset == End {
		q.Offset = total
	}
	at, err := l.align(ctx, min(q.Offset, total))
	if err != nil {
		return Found{}, err
	}
	var over atomic.Bool
	defer time.AfterFunc(most.Time, func() { over.Store(true) }).Stop()
	s := search{log: l, query: q, match: match, most: most, from: at, over: &over}
	s.found = Found{Matches: []Match{}, ScannedTo: at}
	if q.Backward {
		err = s.back(ctx)
	} else {
		err = s.forth(ctx)
	}
	return s.found, err
}

// search is one search under way.
type search struct {
	log   log
	query Query
	match Matcher
	most  Bounds
	from  int64
	over  *atomic.Bool // the time is
	found Found
}

// spent says whether the search has done what it may.
func (s *search) spent() bool {
	return len(s.found.Matches) >= s.most.Matches || max(s.found.ScannedTo-s.from, s.from-s.found.ScannedTo) >= s.most.Bytes || s.over.Load()
}

func (s *search) forth(ctx context.Context) error {
	s.found.Done = true
	return s.log.walk(ctx, s.from, func(r Record, after int64) error {
		if s.spent() {
			s.found.Done = false
			return errEnough
		}
		if m, ok := s.look(r); ok {
			s.found.Matches = append(s.found.Matches, m)
		}
		s.found.ScannedTo = after
		return nil
	})
}

func (s *search) back(ctx context.Context) error {
	for s.found.ScannedTo > 0 {
		low, err := s.log.before(ctx, s.found.ScannedTo)
		if err != nil {
			return err
		}
		var matches []Match // of this part, in the order of the log: the last ones count
		room := s.most.Matches - len(s.found.Matches)
		err = s.log.walk(ctx, low, func(r Record, after int64) error {
			if after > s.found.ScannedTo {
				return errEnough
			}
			if m, ok := s.look(r); ok {
				if matches = append(matches, m); len(matches) > 2*room {
					matches = append(matches[:0], matches[len(matches)-room:]...)
					low = matches[0].Offset
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(matches) > room {
			matches = matches[len(matches)-room:]
			low = matches[0].Offset
		}
		slices.Reverse(matches)
		s.found.Matches = append(s.found.Matches, matches...)
		s.found.ScannedTo = low
		if s.spent() {
			break
		}
	}
	s.found.Done = s.found.ScannedTo == 0
	return nil
}

// look returns what a match shows of a record, if it is one.
func (s *search) look(r Record) (Match, bool) {
	if !s.query.Want(r.Record) {
		return Match{}, false
	}
	// The end of a line is no part of it: $ matches before it.
	line := bytes.TrimRight(r.Data, "\r\n")
	from, to, ok := s.match(line)
	if !ok {
		return Match{}, false
	}
	m := Match{Record: r, Text: excerpt(line, from, to)}
	m.Data = nil
	return m, true
}

// excerpt returns the part of a record around what matches.
func excerpt(data []byte, from, to int) string {
	from, to = min(from, len(data)), min(to, len(data))
	if len(data) > MaxText {
		start := 0
		if to > MaxText {
			start = max(0, from-beforeMatch)
		}
		data = data[start:min(len(data), start+MaxText)]
	}
	text := string(bytes.ToValidUTF8(data, []byte("\uFFFD")))
	for len(text) > MaxText { // replaced bytes take more
		text = string(bytes.ToValidUTF8([]byte(text[:MaxText]), nil))
	}
	return text
}
