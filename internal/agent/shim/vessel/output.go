package vessel

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// source is where output comes from: the container itself, or, with a gap, what the engine
// keeps of it, from the beginning.
type source struct {
	*docker.Output
	gap *gap
}

// gap is the time since when nothing was read, and how much of what came before was.
type gap struct {
	at      time.Time
	streams [2]struct {
		skip  int64 // bytes that were read and are to come again
		after bool  // what comes is from after the gap's begin: it was not read
	}
}

// gap is that of output of which nothing was read since at.
func (v *Vessel) gap(at time.Time) *gap {
	g := &gap{at: at}
	for i, t := range v.out {
		g.streams[i].skip = t.read - t.lost
	}
	return g
}

// tap is where one stream goes, and how much of it went there.
type tap struct {
	w    *os.File
	read int64  // bytes that came
	lost int64  // of these, that the engine's log does not have
	head []byte // the first of them, up to headSize
	part []byte // those since the end of the last piece that the engine keeps
	shut bool   // nobody reads it any more
}

// maxPart is how long a line can be that engines keep in one piece.
const maxPart = 16 << 10

// headSize is enough for what an init says instead of starting a program.
const headSize = 512

// write passes on what comes.
func (t *tap) write(b []byte) {
	t.read += int64(len(b))
	t.head = append(t.head, b[:min(len(b), headSize-len(t.head))]...)
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		t.part = append(t.part[:0], b[i+1:]...)
	} else {
		t.part = append(t.part, b...)
	}
	if n := len(t.part); n >= maxPart {
		t.part = append(t.part[:0], t.part[n-n%maxPart:]...)
	}
	if len(t.part) == 0 {
		t.part = nil // a silent task costs nothing
	}
	if t.shut {
		return // it is read on, so that the task does not stand still
	}
	if _, err := t.w.Write(b); err != nil {
		t.shut = true
	}
}

// again returns what was not read yet of a piece that the engine kept. missing says that some
// may be missing before it.
func (t *tap) again(g *gap, i int, at time.Time, data []byte) (rest []byte, missing bool) {
	s := &g.streams[i]
	if !s.after && at.Before(g.at) {
		n := min(s.skip, int64(len(data)))
		s.skip -= n
		return data[n:], false
	}
	if s.after {
		return data, false
	}
	s.after = true
	if missing = t.short(g, i); !missing && s.skip > 0 {
		var kept bool
		if data, kept = bytes.CutPrefix(data, t.part); kept { // the beginning of a line that was not ended
			return data, false
		}
	}
	t.lost += s.skip
	return data, missing
}

// short reports whether the engine's log has less than was read, but for a line that was not
// ended.
func (t *tap) short(g *gap, i int) bool {
	skip := g.streams[i].skip
	return skip > 0 && skip != int64(len(t.part))
}

// mayMiss is said where what the engine kept does not join what was read.
const mayMiss = "the container engine has not kept all that the task printed: some of it may be missing here"

// pass writes output where it belongs until it ends: nil at a clean end. It is called by one
// goroutine at a time.
func (v *Vessel) pass(src *source) error {
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
		if src.gap != nil {
			if err := v.passKept(src, i, size, &buf); err != nil {
				return err
			}
			continue
		}
		if buf == nil {
			buf = make([]byte, passSize)
		}
		for size > 0 {
			n, err := src.Read(buf)
			v.out[i].write(buf[:n])
			size -= n
			if err != nil {
				return err
			}
		}
	}
}

// passKept passes on a piece of the engine's log.
func (v *Vessel) passKept(src *source, i, size int, buf *[]byte) error {
	if cap(*buf) < size {
		*buf = make([]byte, size)
	}
	piece := (*buf)[:size]
	if _, err := io.ReadFull(src, piece); err != nil {
		return err
	}
	at, data, err := docker.Stamp(piece)
	if err != nil {
		return err
	}
	data, missing := v.out[i].again(src.gap, i, at, data)
	if missing {
		v.hears.Say(mayMiss)
	}
	if len(data) > 0 {
		v.out[i].write(data)
	}
	return nil
}

// passSize is how much is passed on at once.
const passSize = 32 << 10
