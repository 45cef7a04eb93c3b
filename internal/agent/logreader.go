package agent

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
)

// maxLogReaders is the maximum number of local logs that are kept open between frames.
const maxLogReaders = 64

// logReaders reads local logs and keeps the most recently read ones open, since a log is usually read sequentially. Its methods may be
// called concurrently.
type logReaders struct {
	logs Logs

	mu   sync.Mutex
	open []*logReader // least recently used first
}

type logReader struct {
	id     muster.AttemptID
	rc     io.ReadCloser
	offset int64 // of the next Read
}

// read returns the bytes of a range. With an error it returns the bytes before it; the error is io.ErrUnexpectedEOF if the log is shorter.
func (c *logReaders) read(ctx context.Context, l logRange) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.pop(l.at.id)
	if r != nil && r.offset != l.offset {
		_ = r.rc.Close() // it was only read
		r = nil
	}
	if r == nil {
		rc, err := c.logs.Open(ctx, l.at.id, l.offset)
		if err != nil {
			return nil, err
		}
		r = &logReader{id: l.at.id, rc: rc, offset: l.offset}
	}
	data := make([]byte, l.n)
	n, err := io.ReadFull(r.rc, data)
	if err != nil {
		_ = r.rc.Close() // it was only read
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return data[:n], err
	}
	r.offset += l.n
	if c.open = append(c.open, r); len(c.open) > maxLogReaders {
		_ = c.open[0].rc.Close() // it was only read
		c.open = slices.Delete(c.open, 0, 1)
	}
	return data, nil
}

// pop removes and returns the open reader of an attempt; nil if there is none.
func (c *logReaders) pop(id muster.AttemptID) *logReader {
	i := slices.IndexFunc(c.open, func(r *logReader) bool { return r.id == id })
	if i < 0 {
		return nil
	}
	r := c.open[i]
	c.open = slices.Delete(c.open, i, i+1)
	return r
}

// close closes the log of an attempt, so that its removal frees the space.
func (c *logReaders) close(id muster.AttemptID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.pop(id); r != nil {
		_ = r.rc.Close() // it was only read
	}
}

// closeAll closes all logs.
func (c *logReaders) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.open {
		_ = r.rc.Close() // it was only read
	}
	c.open = nil
}
