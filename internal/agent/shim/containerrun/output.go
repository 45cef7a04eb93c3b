package containerrun

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// outputSource is a source of output: the attached container, or, after a gap, the engine's log, from its start.
type outputSource struct {
	*docker.Output
	replay *replay
}

// replay is the position in an engine's log that is read again.
type replay struct {
	at      time.Time // nothing was read since then
	streams [2]struct {
		skip  int64 // bytes that were read before and come again
		after bool  // the position is after at: the rest is new
	}
}

// newReplay returns the replay for output that was not read since a time.
func (c *Container) newReplay(since time.Time) *replay {
	g := &replay{at: since}
	for i, s := range c.out {
		g.streams[i].skip = s.total - s.unlogged
	}
	return g
}

// outputStream is the destination of one stream, and its position.
type outputStream struct {
	w        *os.File
	total    int64  // bytes received
	unlogged int64  // bytes received that the engine's log does not have
	head     []byte // the first bytes, up to headSize
	partial  []byte // bytes since the end of the last piece in the engine's log
	closed   bool   // w has no reader any more
}

// maxLoggedLine is the size of the pieces in which engines log a long line.
const maxLoggedLine = 16 << 10

// headSize is enough for the message of an init that cannot start a program.
const headSize = 512

func (s *outputStream) write(b []byte) {
	s.total += int64(len(b))
	s.head = append(s.head, b[:min(len(b), headSize-len(s.head))]...)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		s.partial = append(s.partial[:0], b[i+1:]...)
	} else {
		s.partial = append(s.partial, b...)
	}
	if n := len(s.partial); n >= maxLoggedLine {
		s.partial = append(s.partial[:0], s.partial[n-n%maxLoggedLine:]...)
	}
	if len(s.partial) == 0 {
		s.partial = nil // a silent task holds no memory
	}
	if s.closed {
		return // output is still consumed, so that the task does not block
	}
	if _, err := s.w.Write(b); err != nil {
		s.closed = true
	}
}

// skipReplayed returns the part of a logged piece that was not read yet. missing says that output before it may be missing.
func (s *outputStream) skipReplayed(g *replay, i int, at time.Time, data []byte) (rest []byte, missing bool) {
	pos := &g.streams[i]
	if !pos.after && at.Before(g.at) {
		n := min(pos.skip, int64(len(data)))
		pos.skip -= n
		return data[n:], false
	}
	if pos.after {
		return data, false
	}
	pos.after = true
	if missing = s.logIncomplete(g, i); !missing && pos.skip > 0 {
		var kept bool
		if data, kept = bytes.CutPrefix(data, s.partial); kept { // the start of an unfinished line
			return data, false
		}
	}
	s.unlogged += pos.skip
	return data, missing
}

// logIncomplete reports whether the engine's log has less than was read, except for an unfinished line.
func (s *outputStream) logIncomplete(g *replay, i int) bool {
	skip := g.streams[i].skip
	return skip > 0 && skip != int64(len(s.partial))
}

// msgOutputMissing is logged where the engine's log does not continue what was read.
const msgOutputMissing = "the container engine has not logged all output of the task: some may be missing here"

// copyOutput writes output to its streams until it ends: nil at a clean end. It is called by one goroutine at a time.
func (c *Container) copyOutput(src *outputSource) error {
	var buf []byte
	for {
		stream, size, err := src.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		i := stream - docker.Stdout
		if src.replay != nil {
			if err := c.copyLogged(src, i, size, &buf); err != nil {
				return err
			}
			continue
		}
		if buf == nil {
			buf = make([]byte, copyBufSize)
		}
		for size > 0 {
			n, err := src.Read(buf)
			c.out[i].write(buf[:n])
			size -= n
			if err != nil {
				return err
			}
		}
	}
}

func (c *Container) copyLogged(src *outputSource, i, size int, buf *[]byte) error {
	if cap(*buf) < size {
		*buf = make([]byte, size)
	}
	piece := (*buf)[:size]
	if _, err := io.ReadFull(src, piece); err != nil {
		return err
	}
	at, data, err := docker.SplitTimestamp(piece)
	if err != nil {
		return err
	}
	data, missing := c.out[i].skipReplayed(src.replay, i, at, data)
	if missing {
		c.handler.LogLine(msgOutputMissing)
	}
	if len(data) > 0 {
		c.out[i].write(data)
	}
	return nil
}

// copyBufSize is the size of the copy buffer in bytes.
const copyBufSize = 32 << 10
