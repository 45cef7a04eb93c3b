package tasklog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

const (
	// maxSegments is the maximum of segments of one log. A Writer keeps fewer.
	maxSegments = 64
	// maxGapFile is the maximum size of the samples that are kept of a gap. Writers keep less.
	maxGapFile = 256 << 20
	// maxGapRecord is the maximum size of one of them, without its head. Readers ignore samples that are longer.
	maxGapRecord = 64 << 10
)

// segment is a part of a log's tail.
type segment struct{ start, size int64 }

func (s segment) end() int64 { return s.start + s.size }

// tailDir returns the directory with the tail of a log. Only long logs have one.
func (d *Dir) tailDir(a muster.AttemptID) string {
	return strings.TrimSuffix(d.path(a), ".log") + ".tail"
}

func (d *Dir) segmentPath(a muster.AttemptID, start int64) string {
	return filepath.Join(d.tailDir(a), strconv.FormatInt(start, 10))
}

func (d *Dir) gapPath(a muster.AttemptID) string { return filepath.Join(d.tailDir(a), "gap") }

// filePath returns the path of the head, which starts at 0, or of a segment.
func (d *Dir) filePath(a muster.AttemptID, start int64) string {
	if start == 0 {
		return d.path(a)
	}
	return d.segmentPath(a, start)
}

// segments returns the tail of a log: the segments up to its end between which nothing is missing. Others, from before a crash, are dropped.
func (d *Dir) segments(a muster.AttemptID) ([]segment, error) {
	list, err := d.allSegments(a)
	for i := len(list) - 1; i > 0; i-- {
		if list[i-1].end() != list[i].start {
			return list[i:], err
		}
	}
	return list, err
}

// allSegments returns the segments that exist.
func (d *Dir) allSegments(a muster.AttemptID) ([]segment, error) {
	entries, err := os.ReadDir(d.tailDir(a))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, e := range entries {
		start, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || start <= 0 || start > maxOffset {
			continue // the gap, or an index
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // just dropped
		}
		if err != nil {
			return nil, err
		}
		list = append(list, segment{start, info.Size()})
	}
	slices.SortFunc(list, func(a, b segment) int { return int(max(-1, min(1, a.start-b.start))) })
	return list, nil
}

// segmentAt returns the index of the segment that contains an offset, of the last one for all beyond; -1 if the offset is before them.
func segmentAt(list []segment, offset int64) int {
	i, found := slices.BinarySearchFunc(list, offset, func(s segment, offset int64) int { return int(max(-1, min(1, s.start-offset))) })
	if found {
		return i
	}
	return i - 1
}

// StartSegment continues a log in a new segment, which begins at its end. The offset is the size of the log; if it is not, StartSegment does
// nothing and returns the size with a Conflict error.
func (d *Dir) StartSegment(_ context.Context, a muster.AttemptID, offset int64) (int64, error) {
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := d.open(l, false); err != nil {
		return 0, err
	}
	if err := l.refreshSize(); err != nil {
		return 0, wrapError("read", a, err)
	}
	if offset != l.size || l.size == 0 {
		return l.size, muster.Errorf(muster.Conflict, "the log of %s has %d bytes: a segment cannot begin at %d", a, l.size, offset)
	}
	return l.size, d.startSegment(l, offset)
}

// startSegment creates the segment that begins at an offset, which becomes the log's end. It does nothing if that is empty already.
func (d *Dir) startSegment(l *logFile, offset int64) error {
	if l.file != nil && l.start == offset && l.size == offset {
		return nil
	}
	f, err := d.create(d.segmentPath(l.id, offset))
	if err != nil {
		return wrapError("write", l.id, err)
	}
	if l.file != nil {
		if d.withIndex && !l.synced {
			err = l.file.Sync() // Sync syncs only the last file
		}
		err = errors.Join(err, l.file.Close())
	}
	l.file, l.start, l.index = f, offset, nil
	if l.size != offset {
		l.grow(offset)
	}
	l.synced = false
	if err != nil {
		return wrapError("sync", l.id, err)
	}
	return nil
}

// Drop drops the segments that end at or before an offset, except the last segment. Their samples are kept.
func (d *Dir) Drop(_ context.Context, a muster.AttemptID, before int64) error {
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := d.open(l, false); err != nil {
		return err
	}
	return d.drop(l, before)
}

func (d *Dir) drop(l *logFile, before int64) error {
	if l.start == 0 {
		return nil
	}
	list, err := d.allSegments(l.id)
	if err != nil {
		return wrapError("read", l.id, err)
	}
	list = slices.DeleteFunc(list, func(s segment) bool { return s.end() > before || s.start == l.start })
	if len(list) == 0 {
		return nil
	}
	if err := d.keepSamples(l, list, nil); err != nil {
		return err
	}
	return d.removeSegments(l, list)
}

func (d *Dir) removeSegments(l *logFile, list []segment) error {
	for _, s := range list { // the oldest first: what is left after a crash has no gap
		path := d.segmentPath(l.id, s.start)
		for _, name := range []string{indexPath(path), path} {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return wrapError("remove a part of", l.id, err)
			}
		}
	}
	return nil
}

// syncTail syncs what Sync does not: the samples of the gap, and the names in the tail's directory.
func (d *Dir) syncTail(a muster.AttemptID) error {
	f, err := os.OpenFile(d.gapPath(a), os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(d.tailDir(a))
}

// gapFile is the file with the samples of a log's gap: records of the streams Usage and Progress, each at its offset in the log, which
// Decoder knows from the records of the stream Gap between them. Records are only added at its end, after a crash possibly some again:
// those that do not begin after the last one are not.
type gapFile struct {
	size int64 // up to the end of the last complete record
	end  int64 // in the log, of the last record
}

// scanGap finds the end of the file.
func scanGap(f *os.File) (*gapFile, error) {
	g := &gapFile{}
	counted := &countingReader{r: f}
	dec := NewDecoder(counted)
	for {
		_, err := dec.Next()
		if err == nil {
			g.size, g.end = counted.n-int64(dec.r.Buffered()), dec.Offset()
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || muster.CodeOf(err) == muster.Invalid {
			return g, nil // what follows is of an interrupted write
		}
		return nil, err
	}
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// keepSamples adds the samples of segments, and then those of a chunk, to the file of the gap.
func (d *Dir) keepSamples(l *logFile, list []segment, extra []byte) (err error) {
	f, err := d.create(d.gapPath(l.id))
	if err != nil {
		return wrapError("write", l.id, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			l.gap = nil
			err = wrapError("write", l.id, err)
		}
	}()
	if l.gap == nil {
		if l.gap, err = scanGap(f); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(io.NewOffsetWriter(f, l.gap.size), 64<<10)
	if err := f.Truncate(l.gap.size); err != nil {
		return err
	}
	for _, s := range list {
		src, err := os.Open(d.segmentPath(l.id, s.start))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = errors.Join(l.gap.copy(w, NewDecoderAt(src, s.start)), src.Close())
		if err != nil {
			return err
		}
	}
	if len(extra) > 0 {
		if err := l.gap.copy(w, NewDecoder(bytes.NewReader(extra))); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if d.withIndex {
		return f.Sync() // the segments are about to be removed
	}
	return nil
}

// copy writes the samples of a log.
func (g *gapFile) copy(w io.Writer, dec *Decoder) error {
	var b []byte
	for {
		r, err := dec.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || muster.CodeOf(err) == muster.Invalid {
			return nil // an incomplete record at the end of the copy, or damage
		}
		if err != nil {
			return err
		}
		if !isSample(r) || dec.Start() < g.end {
			continue
		}
		b = b[:0]
		if dec.Start() > g.end {
			b = appendPosition(b, dec.Start())
		}
		b = AppendRecord(b, r)
		if g.size+int64(len(b)) > maxGapFile {
			return nil
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		g.size, g.end = g.size+int64(len(b)), dec.Offset()
	}
}

// isSample reports whether a record is kept of a gap.
func isSample(r Record) bool {
	return (r.Stream == Usage || r.Stream == Progress) && len(r.Data) <= maxGapRecord
}

// appendPosition appends a record of the stream Gap: the next record begins at an offset.
func appendPosition(dst []byte, offset int64) []byte {
	return AppendRecord(dst, Record{Stream: Gap, Data: binary.BigEndian.AppendUint64(nil, uint64(offset))})
}

// appendMark appends the mark of a gap of size bytes, after which the next record begins at an offset.
func appendMark(dst []byte, at time.Time, size, offset int64) []byte {
	data := binary.BigEndian.AppendUint64(nil, uint64(size))
	return AppendRecord(dst, Record{Stream: Gap, At: at, Data: binary.BigEndian.AppendUint64(data, uint64(offset))})
}

// parseGap returns where the log continues, and the size of the gap, or 0 if the record is not its mark.
func parseGap(data []byte, offset int64) (size, to int64, err error) {
	if len(data) == 16 {
		size = int64(binary.BigEndian.Uint64(data) & uint64(maxOffset))
		data = data[8:]
	}
	if len(data) == 8 {
		to = int64(binary.BigEndian.Uint64(data) & uint64(maxOffset))
	}
	if to < offset {
		return 0, 0, muster.Errorf(muster.Invalid, "the log is damaged: there is no record at byte %d", offset)
	}
	return size, to, nil
}

func gapLine(size int64) []byte {
	return []byte(muster.Size(size).String() + " of output is left out here: a log keeps its beginning and its end (see log_cap)\n")
}
