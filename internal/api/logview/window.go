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
	// step is how much of a log is read at once on the way back.
	step = 256 << 10
	// maxScan is how much of a log one window may pass over in search of records of one stream.
	maxScan = 64 << 20
)

// End as an offset is the end of a log.
const End = -1

// Query selects records around an offset of a log.
type Query struct {
	Attempt  muster.AttemptID
	Offset   int64 // any; it is aligned to the record that it lies in
	Backward bool  // the records before Offset, rather than those from it on
	Want     func(tasklog.Record) bool
}

// Record is a record with the offset at which it begins.
type Record struct {
	Offset int64
	tasklog.Record
}

// Window is a part of a log.
type Window struct {
	Size    int64 // of the log, with a record of which only a part is there
	First   int64 // where the part begins
	Last    int64 // where it ends: the next window goes on there
	AtEnd   bool  // no whole record follows
	Records []Record
}

// Read returns the records of a window: at most so many bytes of data, but one record if there is any. If many records are not
// wanted it may have none: then the next window goes on at Last or, backward, at First.
func Read(ctx context.Context, logs tasklog.Store, q Query, size int) (Window, error) {
	l := log{logs: logs, id: q.Attempt}
	total, err := logs.Size(ctx, q.Attempt)
	if err != nil {
		return Window{}, err
	}
	if q.Offset == End {
		q.Offset = total
	}
	at, err := l.align(ctx, min(q.Offset, total))
	if err != nil {
		return Window{}, err
	}
	w := Window{Size: total, First: at, Last: at, Records: []Record{}}
	if q.Backward {
		err = w.back(ctx, l, q, size)
	} else {
		err = w.forth(ctx, l, q, size)
	}
	if err == nil && q.Backward { // is there more behind the window?
		w.AtEnd = true
		err = l.walk(ctx, w.Last, func(Record, int64) error {
			w.AtEnd = false
			return errEnough
		})
	}
	return w, err
}

func (w *Window) forth(ctx context.Context, l log, q Query, size int) error {
	sum := 0
	w.AtEnd = true
	return l.walk(ctx, w.First, func(r Record, after int64) error {
		if q.Want(r.Record) {
			if sum += len(r.Data); sum > size && len(w.Records) > 0 {
				w.AtEnd = false
				return errEnough
			}
			r.Data = bytes.Clone(r.Data)
			w.Records = append(w.Records, r)
		}
		if w.Last = after; after-w.First > maxScan {
			w.AtEnd = false
			return errEnough
		}
		return nil
	})
}

func (w *Window) back(ctx context.Context, l log, q Query, size int) error {
	sum := 0
	for w.First > 0 && sum < size && w.Last-w.First < maxScan {
		low, err := l.before(ctx, w.First)
		if err != nil {
			return err
		}
		part := tail{most: size - sum, one: len(w.Records) == 0}
		err = l.walk(ctx, low, func(r Record, after int64) error {
			if after > w.First {
				return errEnough
			}
			if q.Want(r.Record) {
				r.Data = bytes.Clone(r.Data)
				part.add(r)
			}
			return nil
		})
		if err != nil {
			return err
		}
		sum += part.size
		w.Records = slices.Concat(part.records, w.Records)
		switch {
		case !part.cut:
			w.First = low
		case len(part.records) > 0:
			w.First = part.records[0].Offset
			return nil
		default:
			return nil
		}
	}
	return nil
}

// tail keeps the last records of a run, at most so many bytes.
type tail struct {
	most, size int
	one        bool // keep the last record however long it is
	records    []Record
	cut        bool // some were left out
}

func (t *tail) add(r Record) {
	t.records = append(t.records, r)
	t.size += len(r.Data)
	for t.size > t.most && (len(t.records) > 1 || !t.one) {
		t.size -= len(t.records[0].Data)
		t.records = t.records[1:]
		t.cut = true
	}
}

// log is one log that is read.
type log struct {
	logs tasklog.Store
	id   muster.AttemptID
}

// errEnough ends a walk early.
var errEnough = errors.New("enough")

// walk calls each for the whole records from an offset on at which one begins, with the offset behind it. Its data is valid until
// each returns.
func (l log) walk(ctx context.Context, from int64, each func(r Record, after int64) error) (err error) {
	f, err := l.logs.Open(ctx, l.id, from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	dec := tasklog.NewDecoder(f)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		before := from + dec.Offset()
		r, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err == nil {
			err = each(Record{Offset: before, Record: r}, from+dec.Offset())
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// align returns where the record begins that an offset lies in, or where the last whole record ends.
func (l log) align(ctx context.Context, offset int64) (int64, error) {
	at, err := l.logs.RecordBefore(ctx, l.id, offset)
	if err != nil {
		return 0, err
	}
	err = l.walk(ctx, at, func(_ Record, after int64) error {
		if after > offset {
			return errEnough
		}
		at = after
		return nil
	})
	return at, err
}

// before returns where a record begins that is about a step before an offset at which another one begins.
func (l log) before(ctx context.Context, offset int64) (int64, error) {
	for back := int64(step); back < offset; back *= 2 {
		at, err := l.logs.RecordBefore(ctx, l.id, offset-back)
		if err != nil || at < offset {
			return at, err
		}
	}
	return 0, nil
}
