package tasklog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/muster-dev/muster"
)

// reader reads a log that may grow, lose parts, and not exist yet.
type reader struct {
	dir   *Dir
	id    muster.AttemptID
	off   int64
	file  *os.File // the head or a segment; nil until it exists
	start int64    // of file
	gap   *gapReader
	rest  []byte // of a record of the gap
}

// Open implements Store. The log need not exist yet.
func (d *Dir) Open(_ context.Context, a muster.AttemptID, offset int64) (io.ReadCloser, error) {
	return d.openReader(a, offset)
}

func (d *Dir) openReader(a muster.AttemptID, offset int64) (*reader, error) {
	if offset < 0 {
		return nil, muster.Errorf(muster.Invalid, "the offset %d in the log of %s is negative", offset, a)
	}
	r := &reader{dir: d, id: a, off: offset}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// maxOpenTries is how often a reader looks for the segment that it needs: each time the oldest one was dropped meanwhile.
const maxOpenTries = 100

// open opens the file that has the next byte, or the gap. It opens none if the log does not exist.
func (r *reader) open() error {
	for range maxOpenTries {
		list, err := r.dir.segments(r.id)
		if err != nil {
			return wrapError("read", r.id, err)
		}
		start, gap := int64(0), int64(-1)
		if len(list) > 0 {
			if i := segmentAt(list, r.off); i >= 0 {
				start = list[i].start
			} else if head, err := r.dir.headSize(r.id); err != nil {
				return wrapError("read", r.id, err)
			} else if r.off >= head {
				gap, start = head, list[0].start
			}
		}
		f, err := os.Open(r.dir.filePath(r.id, start))
		if errors.Is(err, fs.ErrNotExist) {
			if start > 0 {
				continue // just dropped
			}
			return nil
		}
		if err != nil {
			return wrapError("read", r.id, err)
		}
		r.file, r.start = f, start
		if gap >= 0 {
			if r.gap, err = openGap(r.dir.gapPath(r.id), gap, r.off, start, f); err != nil {
				return wrapError("read", r.id, err)
			}
		}
		return nil
	}
	return muster.Errorf(muster.Unavailable, "cannot read the log of %s: it changes too fast", r.id)
}

// Read implements io.Reader. At the end it returns io.EOF and may be repeated.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if len(r.rest) > 0 {
			n := copy(p, r.rest)
			r.rest = r.rest[n:]
			return n, nil
		}
		if r.gap != nil {
			rec, ok, err := r.gap.next()
			if err != nil {
				return 0, wrapError("read", r.id, err)
			}
			if ok && rec.start < r.off {
				continue // a part of it was read before
			}
			r.rest = r.rest[:0]
			next := r.gap.to
			if ok {
				next = rec.start
			}
			if hole := r.gap.lastHole; hole > r.off && hole <= next {
				r.rest = appendMark(r.rest, r.gap.at, r.gap.to-r.gap.from, hole)
			}
			if ok {
				r.rest = AppendRecord(appendPosition(r.rest, rec.start), rec.Record)
				r.off = rec.end
				continue
			}
			r.endGap()
			continue
		}
		n, err := r.readFile(p)
		if n > 0 || len(p) == 0 || err != nil {
			return n, err
		}
		moved, err := r.advance()
		if err != nil {
			return 0, err
		}
		if !moved {
			return 0, io.EOF
		}
	}
}

// readFile reads from the open file; 0 bytes at its end.
func (r *reader) readFile(p []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil || r.file == nil || r.gap != nil {
			return 0, err
		}
	}
	if r.off > maxOffset { // longer than any log: the system would refuse to read there
		return 0, nil
	}
	n, err := r.file.ReadAt(p, r.off-r.start)
	r.off += int64(n)
	if n > 0 || err == nil || errors.Is(err, io.EOF) {
		return n, nil
	}
	return 0, wrapError("read", r.id, err)
}

// advance moves on from the end of a file, and reports whether there is more to read.
func (r *reader) advance() (bool, error) {
	if r.gap != nil {
		return true, nil
	}
	if r.file == nil {
		return false, nil
	}
	list, err := r.dir.segments(r.id)
	if err != nil {
		return false, wrapError("read", r.id, err)
	}
	if len(list) == 0 || list[len(list)-1].start <= r.start {
		return false, nil
	}
	// A file that has a successor is complete, but the end that was read may be from before.
	info, err := r.file.Stat()
	if err != nil {
		return false, wrapError("read", r.id, err)
	}
	if r.start+info.Size() > r.off {
		return true, nil
	}
	_ = r.file.Close() // it was only read
	r.file = nil
	if err := r.open(); err != nil {
		return false, err
	}
	return r.file != nil && (r.gap != nil || r.start <= r.off), nil
}

func (r *reader) endGap() {
	r.off = r.gap.to
	r.gap.close()
	r.gap = nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.gap != nil {
		r.gap.close()
	}
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// gapReader reads the samples of a gap.
type gapReader struct {
	from, to int64     // what is to be read of the gap
	lastHole int64     // where the last part ends that is left out
	at       time.Time // of the record after the gap
	file     *os.File  // nil if there are no samples
	dec      *Decoder
	peeked   *gapRecord
}

// gapRecord is a sample with its place in the log.
type gapRecord struct {
	Record

	start, end int64
}

// openGap opens the gap of a log between two offsets, to read it from a place on. next is the file that follows it.
func openGap(path string, start, from, to int64, next *os.File) (*gapReader, error) {
	g := &gapReader{from: start, to: to, at: time.Now()}
	if first, err := NewDecoder(io.NewSectionReader(next, 0, maxOffset)).Next(); err == nil {
		g.at = first.At // the time of output does not decrease
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		g.from, g.lastHole = from, to
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	g.file, g.dec = f, NewDecoder(f)
	end := start
	for {
		rec, ok, err := g.next()
		if err != nil {
			g.close()
			return nil, err
		}
		if !ok {
			break
		}
		if rec.start > end {
			g.lastHole = rec.start
		}
		end = rec.end
	}
	if to > end {
		g.lastHole = to
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		g.close()
		return nil, err
	}
	g.from, g.dec = from, NewDecoder(f)
	return g, nil
}

// next returns the next sample that does not end before the gap's part; ok is false at the end. Its data is valid until the next call.
func (g *gapReader) next() (rec *gapRecord, ok bool, err error) {
	if rec = g.peeked; rec != nil {
		g.peeked = nil
		return rec, true, nil
	}
	for g.dec != nil {
		r, err := g.dec.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), muster.CodeOf(err) == muster.Invalid:
			return nil, false, nil // what follows is being written
		case err != nil:
			return nil, false, err
		case g.dec.Start() >= g.to: // of a segment that was not removed yet
			return nil, false, nil
		case g.dec.Offset() > g.from && isSample(r):
			return &gapRecord{r, g.dec.Start(), g.dec.Offset()}, true, nil
		}
	}
	return nil, false, nil
}

// unread makes next return a record again.
func (g *gapReader) unread(rec *gapRecord) { g.peeked = rec }

func (g *gapReader) close() {
	if g.file != nil {
		_ = g.file.Close() // it was only read
	}
}
