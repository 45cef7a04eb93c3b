// Package tasklog keeps the output of attempts. It never goes through the
// engine: sessions append what workers ship, and the API reads and follows.
//
// A log is a run of records (see Record). The worker writes the log first, to a
// file of its own, and ships ranges of that file; the server's copy is always a
// byte-for-byte prefix of it. That is why no line is lost or doubled over a
// reconnect or a restart of either side: an Append that repeats bytes is cut to
// what is new, and one that leaves a gap is refused with the size to go on from.
package tasklog

import (
	"context"
	"io"
	"time"

	"github.com/muster-dev/muster"
)

// Store keeps logs. All methods may be called at the same time.
type Store interface {
	// Append adds data at offset and returns the log's size afterwards. If offset is
	// beyond the current size nothing is written and the size is returned with a
	// Conflict error.
	Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error)
	// Size returns how many bytes are there; 0 for a log that nobody wrote to.
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	// Sync makes everything appended so far survive a loss of power.
	Sync(ctx context.Context, a muster.AttemptID) error
	// Open reads from offset. A read at the end returns io.EOF; it may be tried again
	// after Wait.
	Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error)
	// RecordBefore returns where a record begins that is at or before offset, and usually
	// not far from it, so that the end of a long log can be read without the rest. 0 is
	// always right.
	RecordBefore(ctx context.Context, a muster.AttemptID, offset int64) (int64, error)
	// Wait returns when the log is longer than size, or when ctx ends.
	Wait(ctx context.Context, a muster.AttemptID, size int64) error
	// Archive keeps the log of an attempt under another name, so that the attempt has none, and reports whether there was one.
	Archive(ctx context.Context, a muster.AttemptID) (bool, error)
	// Remove deletes the logs of a job.
	Remove(ctx context.Context, job muster.JobID) error
}

// Stream says where a record comes from.
type Stream byte

// The streams.
const (
	Stdout   Stream = 'o'
	Stderr   Stream = 'e'
	System   Stream = 's' // a word from Muster itself, such as "output is cut here"
	Usage    Stream = 'u' // a muster.Sample as JSON: no line of the output
	Progress Stream = 'm' // a muster.Point as JSON: no line of the output
)

// Record is a piece of output: a whole line with its end, or a part of a long
// or unfinished one.
type Record struct {
	Stream Stream
	At     time.Time // when the worker read it, to the millisecond
	Data   []byte
}
