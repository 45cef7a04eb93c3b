package top

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/muster-dev/muster/internal/api/wire"
)

const (
	windowBytes    = 64 << 10  // of a log that are read at once
	excerptBytes   = 512 << 10 // of a log that a page has
	excerptRecords = 100_000   // of them
)

// excerpt is a part of the log of an attempt, without gaps.
type excerpt struct {
	attempt     int
	first, last int64 // where it begins and ends
	size        int64 // of the log
	end         bool  // nothing follows yet
	done        bool  // and nothing will

	records []wire.LogRecord
	bytes   int
	lines   []logLine // n is the offset of the record that ends the line
}

// put takes a window that comes before the excerpt or after it. One of another place or attempt replaces it. What is too much is dropped
// at the other end.
func (e *excerpt) put(w *wire.LogWindow, before bool) {
	bytes := 0
	for i := range w.Records {
		bytes += len(w.Records[i].Data())
	}
	joins := e.attempt == w.Attempt && (before && w.Last == e.first || !before && w.First == e.last)
	if !joins {
		*e = excerpt{attempt: w.Attempt, first: w.First, last: w.Last, end: before}
	}
	e.size, e.bytes = w.Size, e.bytes+bytes
	if before {
		e.first, e.records = w.First, slices.Concat(w.Records, e.records)
	} else {
		e.last, e.records = w.Last, append(e.records, w.Records...)
		e.end = w.Last >= w.Size || len(w.Records) == 0 // else the last record is not whole yet
	}
	e.done = e.end && w.Done
	e.trim(before)
	if len(w.Records) > 0 || !joins {
		e.split()
	}
}

// trim drops records at the end, or at the beginning, where there are too many.
func (e *excerpt) trim(end bool) {
	for (e.bytes > excerptBytes || len(e.records) > excerptRecords) && len(e.records) > 1 {
		if end {
			i := len(e.records) - 1
			e.last, e.end, e.done = e.records[i].Offset, false, false
			e.bytes -= len(e.records[i].Data())
			e.records = e.records[:i]
			continue
		}
		e.bytes -= len(e.records[0].Data())
		e.records = e.records[1:]
		e.first = e.records[0].Offset
	}
}

// split makes lines of the records. Long and unfinished lines have several.
func (e *excerpt) split() {
	e.lines = make([]logLine, 0, len(e.records))
	type begun struct {
		data []byte
		end  *wire.LogRecord
	}
	partial := map[string]begun{}
	add := func(data []byte, r *wire.LogRecord) {
		e.lines = append(e.lines, logLine{text: readable(data), stream: r.Stream, at: r.At, n: r.Offset})
	}
	for i := range e.records {
		r := &e.records[i]
		data := r.Data()
		if rest := partial[r.Stream].data; len(rest) > 0 {
			data = slices.Concat(rest, data)
		}
		line, whole := bytes.CutSuffix(data, []byte{'\n'})
		if whole || len(data) > lineBytes {
			add(line, r)
			delete(partial, r.Stream)
			continue
		}
		partial[r.Stream] = begun{data, r}
	}
	for _, p := range partial {
		add(p.data, p.end)
	}
	slices.SortStableFunc(e.lines, func(a, b logLine) int { return cmp.Compare(a.n, b.n) })
}

// whole reports whether the excerpt has all of the log.
func (e *excerpt) whole() bool { return e.first == 0 && e.end }

// at is the index of the line at an offset, or of the next one; len(lines) if there is none.
func (e *excerpt) at(offset int64) int {
	i, _ := slices.BinarySearchFunc(e.lines, offset, func(l logLine, offset int64) int { return cmp.Compare(l.n, offset) })
	return i
}
