package containerrun

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// outputSource is where output comes from: the container itself, or, with a gap, what the engine
// keeps of it, from the beginning.
type outputSource struct {
	*docker.Output
	replay *replay
}

// replay is the time since when nothing was read, and how much of what came before was.
type replay struct {
	at      time.Time
	streams [2]struct {
		skip  int64 // bytes that were read and are to come again
		after bool  // what comes is from after the gap's begin: it was not read
	}
}

// newReplay is that of output of which nothing was read since at.
func (c *Container) newReplay(since time.Time) *replay {
	g := &replay{at: since}
	for i, s := range c.out {
		g.streams[i].skip = s.total - s.unlogged
	}
	return g
}

// outputStream is where one stream goes, and how much of it went there.
type outputStream struct {
	w        *os.File
	total    int64  // bytes that came
	unlogged int64  // of these, that the engine's log does not have
	head     []byte // the first of them, up to headSize
	partial  []byte // those since the end of the last piece that the engine keeps
	closed   bool   // nobody reads it any more
}

// maxLoggedLine is how long a line can be that engines keep in one piece.
const maxLoggedLine = 16 << 10

// headSize is enough for what an init says instead of starting a program.
const headSize = 512

// write passes on what comes.
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
		s.partial = nil // a silent task costs nothing
	}
	if s.closed {
		return // it is read on, so that the task does not stand still
	}
	if _, err := s.w.Write(b); err != nil {
		s.closed = true
	}
}

// skipReplayed returns what was not read yet of a piece that the engine kept. missing says that some
// may be missing before it.
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
		if data, kept = bytes.CutPrefix(data, s.partial); kept { // the beginning of a line that was not ended
			return data, false
		}
	}
	s.unlogged += pos.skip
	return data, missing
}

// logIncomplete reports whether the engine's log has less than was read, but for a line that was not
// ended.
func (s *outputStream) logIncomplete(g *replay, i int) bool {
	skip := g.streams[i].skip
	return skip > 0 && skip != int64(len(s.partial))
}

// msgOutputMissing is said where what the engine kept does not join what was read.
const msgOutputMissing = "the container engine has not kept all that the task printed: some of it may be missing here"

// copyOutput writes output where it belongs until it ends: nil at a clean end. It is called by one
// goroutine at a time.
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

// copyLogged passes on a piece of the engine's log.
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

// copyBufSize is how much is passed on at once.
const copyBufSize = 32 << 10
