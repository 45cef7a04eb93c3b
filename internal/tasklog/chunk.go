package tasklog

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/muster-dev/muster"
)

// Chunk is a part of a log on its way to another Dir: bytes of the head, bytes of one segment, or the samples of a part of the gap. The
// receiver's segments and gap become those of the sender.
type Chunk struct {
	Offset  int64
	Data    []byte // if To is set, records at their places in the log
	Segment int64  // where the segment begins that has the bytes; 0 for the head
	Kept    int64  // where the first segment begins; 0 if nothing was dropped
	To      int64  // where the part of the gap ends, which begins at Offset; 0 for bytes
}

// End returns the offset after the chunk.
func (c *Chunk) End() int64 {
	if c.To > 0 {
		return c.To
	}
	return c.Offset + int64(len(c.Data))
}

// ChunkReader reads a log in chunks. One goroutine at a time may use it.
type ChunkReader struct{ r *reader }

// Chunks reads a log in chunks from an offset on.
func (d *Dir) Chunks(_ context.Context, a muster.AttemptID, offset int64) (*ChunkReader, error) {
	r, err := d.openReader(a, offset)
	if err != nil {
		return nil, err
	}
	return &ChunkReader{r}, nil
}

// Offset returns the offset of the next chunk.
func (c *ChunkReader) Offset() int64 { return c.r.off }

// Close closes the reader.
func (c *ChunkReader) Close() error { return c.r.Close() }

// Next returns the next chunk, of at most size bytes or one sample, and io.EOF at the end of the log.
func (c *ChunkReader) Next(size int64) (Chunk, error) {
	r := c.r
	data := make([]byte, size)
	for {
		if r.gap != nil {
			return c.nextOfGap(size)
		}
		offset := r.off
		n, err := r.readFull(data)
		if err != nil {
			return Chunk{}, err
		}
		if n > 0 {
			chunk := Chunk{Offset: offset, Data: data[:n], Segment: r.start}
			if r.start > 0 {
				chunk.Kept, err = c.kept()
			}
			return chunk, err
		}
		moved, err := r.advance()
		if err != nil {
			return Chunk{}, err
		}
		if !moved {
			return Chunk{}, io.EOF
		}
	}
}

// readFull fills p from the open file, as far as that has bytes.
func (r *reader) readFull(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := r.readFile(p[n:])
		if n += m; err != nil || m == 0 {
			return n, err
		}
	}
	return n, nil
}

// kept returns where the first segment begins, if segments were dropped.
func (c *ChunkReader) kept() (int64, error) {
	list, err := c.r.dir.segments(c.r.id)
	if err == nil && len(list) > 0 {
		var head int64
		if head, err = c.r.dir.headSize(c.r.id); err == nil && head < list[0].start {
			return list[0].start, nil
		}
	}
	if err != nil {
		return 0, wrapError("read", c.r.id, err)
	}
	return 0, nil
}

func (c *ChunkReader) nextOfGap(size int64) (Chunk, error) {
	r := c.r
	chunk := Chunk{Offset: r.off, Kept: r.gap.to}
	for {
		rec, ok, err := r.gap.next()
		if err != nil {
			return Chunk{}, wrapError("read", r.id, err)
		}
		if !ok {
			chunk.To = r.gap.to
			r.endGap()
			return chunk, nil
		}
		if n := len(chunk.Data); n > 0 && int64(n+len(rec.Data))+3*headSize > size {
			r.gap.unread(rec)
			chunk.To = rec.start
			r.off = rec.start
			return chunk, nil
		}
		chunk.Data = AppendRecord(appendPosition(chunk.Data, rec.start), rec.Record)
	}
}

// AppendChunk adds a chunk, as Append does. A chunk that is there already changes nothing. A log that has more than limit bytes without
// the samples of its gap loses its oldest segments; if that is not enough, the rest of a file is dropped, as if it were stored.
func (d *Dir) AppendChunk(_ context.Context, a muster.AttemptID, c *Chunk, limit int64) (int64, error) {
	if c.Offset < 0 || c.End() < c.Offset || c.End() > maxOffset {
		return 0, muster.Errorf(muster.Invalid, "a chunk of the log of %s has the offset %d", a, c.Offset)
	}
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.To > 0 {
		return d.appendGap(l, c)
	}
	if err := d.open(l, len(c.Data) > 0 && c.Offset == 0); err != nil {
		return 0, err
	}
	if c.Segment > 0 {
		if err := d.followSegments(l, c, limit); err != nil {
			return l.size, err
		}
	}
	if l.file != nil && l.size-l.start+int64(len(c.Data)) > limit {
		return max(l.size, c.End()), nil
	}
	return d.append(l, c.Offset, c.Data)
}

// followSegments makes the segments those of the sender, as far as the chunk tells.
func (d *Dir) followSegments(l *logFile, c *Chunk, limit int64) error {
	if c.Segment == c.Offset && c.Offset == l.size && l.size > l.start && len(c.Data) > 0 {
		if err := d.startSegment(l, c.Offset); err != nil {
			return err
		}
		if err := d.limitSegments(l, limit); err != nil {
			return err
		}
	}
	if c.Kept > 0 && l.start > 0 {
		return d.drop(l, c.Kept)
	}
	return nil
}

// limitSegments drops the oldest segments of a log that has too many, or too many bytes.
func (d *Dir) limitSegments(l *logFile, limit int64) error {
	list, err := d.segments(l.id)
	if err != nil {
		return wrapError("read", l.id, err)
	}
	sum, err := d.headSize(l.id)
	if err != nil {
		return wrapError("read", l.id, err)
	}
	for _, s := range list {
		sum += s.size
	}
	before := int64(0)
	for len(list) > 1 && (sum > limit || len(list) > maxSegments) {
		sum, before = sum-list[0].size, list[0].end()
		list = list[1:]
	}
	if before == 0 {
		return nil
	}
	return d.drop(l, before)
}

// appendGap continues a log after a part that the sender has dropped.
func (d *Dir) appendGap(l *logFile, c *Chunk) (int64, error) {
	if err := d.open(l, c.Offset == 0); err != nil {
		return 0, err
	}
	if err := l.refreshSize(); err != nil {
		return 0, wrapError("read", l.id, err)
	}
	switch {
	case c.Offset > l.size:
		return l.size, muster.Errorf(muster.Conflict, "the log of %s has %d bytes: continue from there, not from %d", l.id, l.size, c.Offset)
	case c.To <= l.size:
		return l.size, nil
	case checkSamples(c) != nil:
		return l.size, checkSamples(c)
	}
	list, err := d.allSegments(l.id)
	if err != nil {
		return l.size, wrapError("read", l.id, err)
	}
	if err := d.keepSamples(l, list, c.Data); err != nil {
		return l.size, err
	}
	// Whatever is killed: before this the size is the old one, and all is repeated; after it the segments before are no longer a part of
	// the log.
	if err := d.startSegment(l, c.To); err != nil {
		return l.size, err
	}
	return l.size, d.removeSegments(l, list)
}

// checkSamples returns an error if the chunk of a gap has other records than samples, or other ones than of this part.
func checkSamples(c *Chunk) error {
	dec := NewDecoder(bytes.NewReader(c.Data))
	for {
		r, err := dec.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && (!isSample(r) || dec.Offset() <= c.Offset || dec.Start() >= c.To) {
			err = muster.Errorf(muster.Invalid, "there is no sample at byte %d of the log", dec.Start())
		}
		if err != nil {
			return muster.Errorf(muster.Invalid, "a chunk of a gap is damaged: %w", err)
		}
	}
}
