// Package tasklog stores the output of attempts. Output bypasses the
// engine: sessions append what workers send, and the API reads and follows logs.
//
// A log is a sequence of records (see Record). Each byte of it has an offset, which never changes. The worker writes the log to
// local files first and sends ranges of it; the server's copy is always a
// byte-for-byte prefix of it. So no line is lost or duplicated by a
// reconnect or a restart of either side: Append skips bytes that it already has,
// and refuses data beyond its end with the size from which to continue.
//
// A long log keeps its beginning and its end:
//
//	0          head          │       gap        │        tail         size
//	├────────────────────────┼──────────────────┼───────┬───────┬───────┤
//	         17/0/3.2.log    │  3.2.tail/gap    │   3.2.tail/OFFSET     │
//
// The writer ends the head with StartSegment, continues in segments that each begin with a record, and drops the oldest of them
// with Drop (see Writer). Of what it drops only the records of the streams Usage and Progress are kept, with their offsets, in the file
// gap. Readers get the gap as those records and a mark, a record of the stream Gap. The server's copy follows the worker's (see Chunk).
package tasklog

import (
	"context"
	"io"
	"time"

	"github.com/muster-dev/muster"
)

// Store stores logs. All methods may be called at the same time.
type Store interface {
	// Append adds data at offset and returns the log's new size. If offset is
	// beyond the current size, it writes nothing and returns the size with a
	// Conflict error.
	Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error)
	// Size returns the offset of the log's end; 0 for a log that does not exist.
	Size(ctx context.Context, a muster.AttemptID) (int64, error)
	// Sync makes all appended data survive a loss of power.
	Sync(ctx context.Context, a muster.AttemptID) error
	// Open reads records from offset, for a Decoder that begins at offset. A read at the end returns io.EOF; it may be repeated
	// after Wait.
	Open(ctx context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error)
	// RecordBefore returns the start of a record at or before offset, usually
	// close to it, so that the end of a long log can be read alone. 0 is always correct.
	RecordBefore(ctx context.Context, a muster.AttemptID, offset int64) (int64, error)
	// Wait returns when the log is longer than size, or when ctx ends.
	Wait(ctx context.Context, a muster.AttemptID, size int64) error
	// Archive renames the log of an attempt, so that the attempt has no log, and reports whether it had one.
	Archive(ctx context.Context, a muster.AttemptID) (bool, error)
	// Remove deletes the logs of a job. It does not wait until their space is free.
	Remove(ctx context.Context, job muster.JobID) error
}

// Stream is the source of a record.
type Stream byte

// The streams.
const (
	Stdout   Stream = 'o'
	Stderr   Stream = 'e'
	System   Stream = 's' // a message of Muster, such as "output truncated"
	Usage    Stream = 'u' // a muster.Sample as JSON, not a line of output
	Progress Stream = 'm' // a muster.Point as JSON, not a line of output
	Gap      Stream = 'g' // a message of the Decoder: output is left out here
)

// Record is a piece of output: a line with its end, or a part of a long
// or unfinished line.
type Record struct {
	Stream Stream
	At     time.Time // when the worker read it, to the millisecond
	Data   []byte
}
