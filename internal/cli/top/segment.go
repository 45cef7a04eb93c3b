package top

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/term"
)

const (
	windowBytes       = 64 << 10 // of one read
	maxSegmentBytes   = 512 << 10
	maxSegmentRecords = 100_000
	maxLineBytes      = 8 << 10
)

// logLine is one line of a task's output.
type logLine struct {
	text   string // without control characters
	stream string
	at     muster.Time
	seq    int64 // offset of the record that ends the line
}

// visibleText returns what a terminal shows of a line: the text after the last carriage return, without escape sequences.
func visibleText(data []byte) string {
	data = bytes.TrimRight(data, "\r")
	if i := bytes.LastIndexByte(data, '\r'); i >= 0 {
		data = data[i+1:]
	}
	if len(data) > maxLineBytes {
		data = data[:maxLineBytes]
	}
	text := ansi.Strip(strings.ToValidUTF8(string(data), "�"))
	return term.Sanitize(strings.ReplaceAll(text, "\t", "    "))
}

// logSegment is a part of the log of an attempt, without gaps.
type logSegment struct {
	attempt     int
	first, last int64 // offsets
	size        int64 // of the log
	end         bool  // it includes the current end of the log
	done        bool  // the log is complete, too

	records []wire.LogRecord
	bytes   int
	lines   []logLine
}

// add adds a window before or after the segment, and drops records at the other end beyond the limits. A window that is
// not adjacent, or of another attempt, replaces the segment.
func (e *logSegment) add(w *wire.LogWindow, before bool) {
	bytes := 0
	for i := range w.Records {
		bytes += len(w.Records[i].Data())
	}
	contiguous := e.attempt == w.Attempt && (before && w.Last == e.first || !before && w.First == e.last)
	if !contiguous {
		*e = logSegment{attempt: w.Attempt, first: w.First, last: w.Last, end: before}
	}
	e.size, e.bytes = w.Size, e.bytes+bytes
	if before {
		e.first, e.records = w.First, slices.Concat(w.Records, e.records)
	} else {
		e.last, e.records = w.Last, append(e.records, w.Records...)
		e.end = w.Last >= w.Size || len(w.Records) == 0 // else the last record is incomplete
	}
	e.done = e.end && w.Done
	e.trim(before)
	if len(w.Records) > 0 || !contiguous {
		e.splitLines()
	}
}

// trim drops records beyond the limits, at the end or at the start.
func (e *logSegment) trim(end bool) {
	for (e.bytes > maxSegmentBytes || len(e.records) > maxSegmentRecords) && len(e.records) > 1 {
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

// splitLines splits the records into lines. A line may span several records.
func (e *logSegment) splitLines() {
	e.lines = make([]logLine, 0, len(e.records))
	type partialLine struct {
		data []byte
		end  *wire.LogRecord
	}
	partial := map[string]partialLine{}
	add := func(data []byte, r *wire.LogRecord) {
		e.lines = append(e.lines, logLine{text: visibleText(data), stream: r.Stream, at: r.At, seq: r.Offset})
	}
	for i := range e.records {
		r := &e.records[i]
		data := r.Data()
		if rest := partial[r.Stream].data; len(rest) > 0 {
			data = slices.Concat(rest, data)
		}
		line, terminated := bytes.CutSuffix(data, []byte{'\n'})
		if terminated || len(data) > maxLineBytes {
			add(line, r)
			delete(partial, r.Stream)
			continue
		}
		partial[r.Stream] = partialLine{data, r}
	}
	for _, p := range partial {
		add(p.data, p.end)
	}
	slices.SortStableFunc(e.lines, func(a, b logLine) int { return cmp.Compare(a.seq, b.seq) })
}

// complete reports whether the segment is the whole log.
func (e *logSegment) complete() bool { return e.first == 0 && e.end }

// indexOf returns the index of the line at an offset, or of the next one, len(lines) if there is none.
func (e *logSegment) indexOf(offset int64) int {
	i, _ := slices.BinarySearchFunc(e.lines, offset, func(l logLine, offset int64) int { return cmp.Compare(l.seq, offset) })
	return i
}
