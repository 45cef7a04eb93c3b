package logview

import (
	"context"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Since returns where the first record begins, at or after an offset, that filter accepts and that is not older than t; the end of the log if there is none.
// It reads a small part of a log whose times do not decrease, as those of a worker's clock.
func Since(ctx context.Context, logs tasklog.Store, id muster.AttemptID, from int64, t time.Time, filter func(tasklog.Record) bool) (int64, error) {
	l := log{logs: logs, id: id}
	size, err := logs.Size(ctx, id)
	if err != nil {
		return 0, err
	}
	for high := size; high-from > scanStep; { // no record before from is wanted, and the first one from high on is, if any
		mid := from + (high-from)/2
		start, err := logs.RecordBefore(ctx, id, mid)
		if err != nil {
			return 0, err
		}
		start = max(start, from)
		first, after, err := l.first(ctx, start, high, filter)
		if err != nil {
			return 0, err
		}
		switch {
		case first == nil || !first.At.Before(t):
			if start == from && first != nil {
				return first.Offset, nil
			}
			if start == from {
				from = high
			}
			high = start
		case after <= mid && start == from:
			high = from // the log has no index: read the rest of it
		default:
			from = after
		}
	}
	found := size
	err = l.walk(ctx, from, func(r Record, _ int64) error {
		if !filter(r.Record) || r.At.Before(t) {
			return nil
		}
		found = r.Offset
		return ErrStop
	})
	return found, err
}

// first returns the first record between two offsets that filter accepts, without its data, and the offset after it; nil if there is none.
func (l log) first(ctx context.Context, from, to int64, filter func(tasklog.Record) bool) (first *Record, end int64, err error) {
	err = l.walk(ctx, from, func(r Record, after int64) error {
		if r.Offset >= to {
			return ErrStop
		}
		if !filter(r.Record) {
			return nil
		}
		r.Data = nil
		first, end = &r, after
		return ErrStop
	})
	return first, end, err
}
