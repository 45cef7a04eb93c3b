package logview

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
)

// tailChunk is the size of the part of a log's end that is read first to find its last lines.
const tailChunk = 64 << 10

// Tail returns where the last lines of output begin that filter accepts, at or after an offset. It reads growing parts of the log's end
// until it has enough lines. Its memory grows with lines.
func Tail(ctx context.Context, logs tasklog.Store, id muster.AttemptID, from int64, lines int, filter func(tasklog.Record) bool) (int64, error) {
	l := log{logs: logs, id: id}
	size, err := logs.Size(ctx, id)
	if err != nil {
		return 0, err
	}
	for distance := int64(tailChunk); ; distance *= 4 {
		at := from
		if start := size - distance; start > from {
			if start, err = logs.RecordBefore(ctx, id, start); err != nil {
				return 0, err
			}
			at = max(start, from)
		}
		offset, enough, err := l.lastLines(ctx, at, lines, filter)
		damaged := muster.CodeOf(err) == muster.Invalid && at != from // the log or its index
		if err != nil && !damaged {
			return 0, err
		}
		if enough || at == from {
			return offset, nil
		}
	}
}

// lastLines returns where the last lines after an offset begin. enough is false if there are
// no more than these: the first of them may have begun before.
func (l log) lastLines(ctx context.Context, from int64, lines int, filter func(tasklog.Record) bool) (offset int64, enough bool, err error) {
	starts := make([]int64, lines) // ring of the beginnings of the last lines
	n := 0
	before, open := from, false // open: the last line has no end yet
	err = l.walk(ctx, from, func(r Record, after int64) error {
		if filter(r.Record) && len(r.Data) > 0 {
			if !open {
				starts[n%len(starts)] = before
				n++
			}
			open = r.Data[len(r.Data)-1] != '\n'
		}
		before = after
		return nil
	})
	if n <= lines {
		return from, false, err
	}
	return starts[n%len(starts)], err == nil, err
}
