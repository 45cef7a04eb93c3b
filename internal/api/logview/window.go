// Package logview reads parts of long logs: windows of records around an offset, and records that match a search. It starts near
// the requested offset by the log's index, so that the memory and time of a call do not depend on the size of the log.
package logview

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

const (
	// scanStep is the size of the parts that are read backward.
	scanStep = 256 << 10
	// maxScan is the maximum size of the log that one window scans for records of one stream.
	maxScan = 64 << 20
)

// End as an offset is the end of a log.
const End = -1

// Query selects records around an offset of a log.
type Query struct {
	Attempt  muster.AttemptID
	Offset   int64 // aligned to the record that contains it
	Backward bool  // the records before Offset
	Filter   func(tasklog.Record) bool
}

// Record is a record with its offset.
type Record struct {
	Offset int64
	tasklog.Record
}

// Window is a part of a log.
type Window struct {
	Size    int64 // of the log, including an incomplete last record
	First   int64 // where the window begins
	Last    int64 // where it ends, and the next window begins
	AtEnd   bool  // no complete record follows
	Records []Record
}

// Read returns the records of a window: at most size bytes of data, but at least one record if there is any. If the filter excludes
// many records, the window may be empty: the next one continues at Last or, backward, at First.
func Read(ctx context.Context, logs tasklog.Store, q Query, size int) (Window, error) {
	l := log{logs: logs, id: q.Attempt}
	total, at, err := l.locate(ctx, q.Offset)
	if err != nil {
		return Window{}, err
	}
	w := Window{Size: total, First: at, Last: at, Records: []Record{}}
	if q.Backward {
		err = w.backward(ctx, l, q, size)
	} else {
		err = w.forward(ctx, l, q, size)
	}
	if err == nil && q.Backward { // does a record follow the window?
		w.AtEnd = true
		err = l.walk(ctx, w.Last, func(Record, int64) error {
			w.AtEnd = false
			return ErrStop
		})
	}
	return w, err
}

func (w *Window) forward(ctx context.Context, l log, q Query, size int) error {
	sum := 0
	w.AtEnd = true
	return l.walk(ctx, w.First, func(r Record, after int64) error {
		if q.Filter(r.Record) {
			if sum += len(r.Data); sum > size && len(w.Records) > 0 {
				w.AtEnd = false
				return ErrStop
			}
			r.Data = bytes.Clone(r.Data)
			w.Records = append(w.Records, r)
		}
		if w.Last = after; after-w.First > maxScan {
			w.AtEnd = false
			return ErrStop
		}
		return nil
	})
}

func (w *Window) backward(ctx context.Context, l log, q Query, size int) error {
	sum := 0
	for w.First > 0 && sum < size && w.Last-w.First < maxScan {
		start, err := l.stepBack(ctx, w.First)
		if err != nil {
			return err
		}
		batch := lastRecords{maxBytes: size - sum, keepOne: len(w.Records) == 0}
		err = l.walk(ctx, start, func(r Record, after int64) error {
			if after > w.First {
				return ErrStop
			}
			if q.Filter(r.Record) {
				r.Data = bytes.Clone(r.Data)
				batch.add(r)
			}
			return nil
		})
		if err != nil {
			return err
		}
		sum += batch.size
		w.Records = slices.Concat(batch.records, w.Records)
		switch {
		case !batch.truncated:
			w.First = start
		case len(batch.records) > 0:
			w.First = batch.records[0].Offset
			return nil
		default:
			return nil
		}
	}
	return nil
}

// lastRecords keeps the last records, at most maxBytes.
type lastRecords struct {
	maxBytes, size int
	keepOne        bool // keep the last record even if it is longer
	records        []Record
	truncated      bool // some were dropped
}

func (t *lastRecords) add(r Record) {
	t.records = append(t.records, r)
	t.size += len(r.Data)
	for t.size > t.maxBytes && (len(t.records) > 1 || !t.keepOne) {
		t.size -= len(t.records[0].Data)
		t.records = t.records[1:]
		t.truncated = true
	}
}

// log is a log to read.
type log struct {
	logs tasklog.Store
	id   muster.AttemptID
}

// ErrStop ends Walk without an error if the function that Walk calls returns it.
var ErrStop = errors.New("enough")

// Walk calls visit for the complete records of a log from an offset on, at which one begins, with the offset after the record. The
// data is valid until visit returns.
func Walk(ctx context.Context, logs tasklog.Store, id muster.AttemptID, from int64, visit func(r Record, after int64) error) (err error) {
	f, err := logs.Open(ctx, id, from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	dec := tasklog.NewDecoderAt(f, from)
	for n := 0; ; n++ {
		if n%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err == nil {
			err = visit(Record{Offset: dec.Start(), Record: r}, dec.Offset())
		}
		if errors.Is(err, ErrStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l log) walk(ctx context.Context, from int64, visit func(r Record, after int64) error) error {
	return Walk(ctx, l.logs, l.id, from, visit)
}

// locate returns the size of the log and the aligned offset, which may be End.
func (l log) locate(ctx context.Context, offset int64) (size, at int64, err error) {
	if size, err = l.logs.Size(ctx, l.id); err != nil {
		return 0, 0, err
	}
	if offset == End {
		offset = size
	}
	at, err = l.align(ctx, min(offset, size))
	return size, at, err
}

// align returns where the record that contains an offset begins, or where the last complete record ends.
func (l log) align(ctx context.Context, offset int64) (int64, error) {
	at, err := l.logs.RecordBefore(ctx, l.id, offset)
	if err != nil {
		return 0, err
	}
	err = l.walk(ctx, at, func(_ Record, after int64) error {
		if after > offset {
			return ErrStop
		}
		at = after
		return nil
	})
	return at, err
}

// stepBack returns where a record begins that is about scanStep before the offset of another one.
func (l log) stepBack(ctx context.Context, offset int64) (int64, error) {
	for distance := int64(scanStep); distance < offset; distance *= 2 {
		at, err := l.logs.RecordBefore(ctx, l.id, offset-distance)
		if err != nil || at < offset {
			return at, err
		}
	}
	return 0, nil
}
