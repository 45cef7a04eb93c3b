package tasklog

import (
	"bytes"
	"context"
	"slices"

	"github.com/muster-dev/muster"
)

// Segments is a store in which a Writer divides a log. Dir implements it.
type Segments interface {
	Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error)
	StartSegment(ctx context.Context, a muster.AttemptID, offset int64) (int64, error)
	Drop(ctx context.Context, a muster.AttemptID, before int64) error
}

// segmentsPerLog is the number of segments that have as many bytes as a log may have, the head included.
const segmentsPerLog = 8

// Writer appends to a log and keeps its beginning and its end: of a log with more than limit bytes of output the first limit/2 bytes, and
// between 3/8 and 1/2 of the limit at its end. It is the only writer of the log. One goroutine at a time may use it.
type Writer struct {
	logs    Segments
	id      muster.AttemptID
	limit   int64
	offset  int64
	parts   []part // the head, and the segments
	partial []byte // a part of it is in the file, and the rest is to follow
}

// part is the head or a segment.
type part struct {
	start  int64
	output int64 // bytes of output
}

// NewWriter returns a writer that continues a log without segments, which has size bytes, all of them output.
func NewWriter(logs Segments, a muster.AttemptID, size, limit int64) *Writer {
	return &Writer{logs: logs, id: a, limit: limit, offset: size, parts: []part{{output: size}}}
}

// ResumeWriter is NewWriter for any log of d.
func ResumeWriter(d *Dir, a muster.AttemptID, limit int64) (*Writer, error) {
	list, err := d.segments(a)
	if err != nil {
		return nil, wrapError("read", a, err)
	}
	head, err := d.headSize(a)
	if err != nil {
		return nil, wrapError("read", a, err)
	}
	w := NewWriter(d, a, head, limit)
	for _, s := range list {
		w.parts = append(w.parts, part{s.start, s.size})
		w.offset = s.end()
	}
	return w, nil
}

// Size returns the offset of the log's end.
func (w *Writer) Size() int64 { return w.offset }

// Incomplete reports whether the last write ended in the middle of a record. The next one completes it.
func (w *Writer) Incomplete() bool { return w.partial != nil }

// WriteOutput appends complete records of output. With an error, some of them may have been written.
func (w *Writer) WriteOutput(ctx context.Context, records []byte) error {
	for len(records) > 0 {
		last := &w.parts[len(w.parts)-1]
		room := w.limit/segmentsPerLog - last.output
		if len(w.parts) == 1 {
			room = w.limit/2 - last.output
		}
		n := fittingRecords(records, room)
		if n == 0 && last.output > 0 {
			if err := w.startSegment(ctx); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			n = recordSize(records)
		}
		w.drop(ctx, int64(n))
		if err := w.Write(ctx, records[:n]); err != nil {
			return err
		}
		w.parts[len(w.parts)-1].output += int64(n)
		records = records[n:]
	}
	return nil
}

// startSegment starts a segment after the rest of a partial write.
func (w *Writer) startSegment(ctx context.Context) error {
	if w.partial != nil {
		if err := w.Write(ctx, nil); err != nil {
			return err
		}
	}
	if _, err := w.logs.StartSegment(ctx, w.id, w.offset); err != nil {
		return err
	}
	w.parts = append(w.parts, part{start: w.offset})
	return nil
}

// drop drops the oldest segments, so that there is space for n more bytes of output. If that fails, for example because the disk is full, it is
// repeated before the next write.
func (w *Writer) drop(ctx context.Context, n int64) {
	sum := n
	for _, p := range w.parts {
		sum += p.output
	}
	i := 1
	for ; i < len(w.parts)-1 && sum > w.limit; i++ {
		sum -= w.parts[i].output
	}
	if i > 1 && w.logs.Drop(ctx, w.id, w.parts[i].start) == nil {
		w.parts = slices.Delete(w.parts, 1, i)
	}
}

// Write appends complete records that do not count as output, after the rest of a partial write.
func (w *Writer) Write(ctx context.Context, records []byte) error {
	if w.partial != nil {
		records = append(slices.Clip(w.partial), records...)
	}
	size, err := w.logs.Append(ctx, w.id, w.offset, records)
	if err != nil {
		if size > w.offset && w.partial == nil {
			w.partial = bytes.Clone(records)
		}
		return err
	}
	w.partial, w.offset = nil, size
	return nil
}

// fittingRecords returns the size of the records at the start that take at most limit bytes.
func fittingRecords(records []byte, limit int64) (n int) {
	for n < len(records) {
		size := recordSize(records[n:])
		if int64(n+size) > limit {
			break
		}
		n += size
	}
	return n
}

// recordSize returns the size of the first of complete records.
func recordSize(records []byte) int {
	n, _ := recordLength(records)
	return headSize + n
}
