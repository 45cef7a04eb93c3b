package tasklog

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/muster-dev/muster"
)

// indexInterval is the least distance of two offsets in a log's index, in bytes.
const indexInterval = 64 << 10

// An index is a file beside the head or a segment of a log with offsets in that file at which records begin: 8 bytes
// each, big endian, increasing by at least indexInterval. It can be rebuilt
// at any time, and is never ahead of the file.

// indexer finds the offsets for an index in a log's bytes.
type indexer struct {
	pos     int64 // in the file, of the next byte
	last    int64 // the last offset found, or 0
	skip    int64 // remaining bytes of the current record's data
	head    [headSize]byte
	headLen int  // bytes of head
	damaged bool // the log is damaged: no more offsets are found
}

// write processes the next bytes and calls emit for each offset.
func (x *indexer) write(data []byte, emit func(offset int64)) {
	for len(data) > 0 && !x.damaged {
		if n := min(x.skip, int64(len(data))); n > 0 {
			x.skip -= n
			x.pos += n
			data = data[n:]
			continue
		}
		n := copy(x.head[x.headLen:], data)
		x.headLen += n
		x.pos += int64(n)
		data = data[n:]
		if x.headLen < headSize {
			return
		}
		x.headLen = 0
		length, ok := recordLength(x.head[:])
		if !ok {
			x.damaged = true
			return
		}
		x.skip = int64(length)
		if start := x.pos - headSize; start-x.last >= indexInterval {
			x.last = start
			emit(start)
		}
	}
}

// OpenIndexedDir is OpenDir with an index for each long log, for RecordBefore, and in the layout for many jobs. Only one Dir at a time may be open
// so, and no other one may append to its logs. It moves the logs of an older Muster into this layout.
func OpenIndexedDir(path string) (*Dir, error) {
	d, err := OpenDir(path)
	if err != nil {
		return nil, err
	}
	d.withIndex = true
	return d, d.moveToBuckets()
}

func indexPath(logPath string) string { return logPath + ".idx" }

// updateIndex indexes data appended to the open file of a log. If it cannot write the index, RecordBefore
// rebuilds it.
func (d *Dir) updateIndex(l *logFile, offset int64, data []byte) {
	if !d.withIndex {
		return
	}
	path := indexPath(d.filePath(l.id, l.start))
	if offset == 0 {
		l.index = &indexer{}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // the index of an earlier log stays, without offsets of this one
		}
	}
	if l.index == nil || l.index.pos != offset {
		l.index = nil // another Dir wrote, or the file was opened again
		return
	}
	var entries []int64
	l.index.write(data, func(start int64) { entries = append(entries, start) })
	if len(entries) > 0 && appendIndex(path, entries) != nil {
		l.index = nil
	}
}

// appendIndex adds the offsets beyond the last one of an index.
func appendIndex(path string, entries []int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	last, n, err := lastEntry(f, maxOffset)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	b := make([]byte, 0, 8*len(entries))
	for _, e := range entries {
		if e > last {
			b = binary.BigEndian.AppendUint64(b, uint64(e))
		}
	}
	_, err = f.WriteAt(b, 8*n)
	return errors.Join(err, f.Close())
}

const maxOffset = int64(1)<<62 - 1

// lastEntry returns the last offset of an index that is at most limit, and the number of
// entries up to it; 0 and 0 if there is none.
func lastEntry(f *os.File, limit int64) (offset, n int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	entryAt := func(i int64) (int64, error) {
		var b [8]byte
		_, err := f.ReadAt(b[:], 8*i)
		return int64(binary.BigEndian.Uint64(b[:]) & uint64(maxOffset)), err
	}
	low, high := int64(0), info.Size()/8 // entries before low are at most limit, those from high on are not
	for low < high {
		mid := (low + high) / 2
		v, err := entryAt(mid)
		if err != nil {
			return 0, 0, err
		}
		if v <= limit {
			low, offset = mid+1, v
		} else {
			high = mid
		}
	}
	return offset, low, nil
}

// RecordBefore implements Store. It reads only the part of the log that is not in its index,
// which is usually empty. In the gap it returns the end of the head.
func (d *Dir) RecordBefore(ctx context.Context, a muster.AttemptID, offset int64) (int64, error) {
	if offset < indexInterval {
		return 0, nil
	}
	file := int64(0) // where the file begins
	list, err := d.segments(a)
	if err != nil {
		return 0, wrapError("read", a, err)
	}
	if len(list) > 0 {
		if i := segmentAt(list, offset); i >= 0 {
			file = list[i].start
		} else if head, err := d.headSize(a); err != nil {
			return 0, wrapError("read", a, err)
		} else if offset >= head {
			return head, nil
		}
	}
	if !d.withIndex {
		return file, nil
	}
	offset -= file
	path := d.filePath(a, file)
	start, end, err := readIndex(indexPath(path), offset)
	if err != nil || offset-end < 2*indexInterval {
		return file + start, err
	}
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	tracked := l.index != nil && l.start == file
	l.mu.Unlock()
	if tracked {
		return file + start, nil // the index is complete: a record may be long
	}
	entries, err := scanIndex(ctx, path, end, offset)
	if err != nil || len(entries) == 0 {
		return file + start, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = appendIndex(indexPath(path), entries) // on error it is rebuilt the next time
	return file + entries[len(entries)-1], nil
}

// readIndex returns the last offset of an index that is at most offset, and the last one.
func readIndex(path string, offset int64) (start, end int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err == nil {
		defer f.Close()
		if start, _, err = lastEntry(f, offset); err == nil {
			end, _, err = lastEntry(f, maxOffset)
		}
	}
	if err != nil {
		return 0, 0, muster.Errorf(muster.Internal, "cannot read the index %s: %w", path, err)
	}
	return start, end, nil
}

// scanIndex finds the offsets for an index in the log at path, from the start of a record up to
// an offset.
func scanIndex(ctx context.Context, path string, from, to int64) ([]int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read the log %s: %w", path, err)
	}
	defer f.Close()
	var entries []int64
	x := indexer{pos: from, last: from}
	r := bufio.NewReaderSize(io.NewSectionReader(f, from, to-from), 256<<10)
	for ctx.Err() == nil {
		block, err := r.Peek(max(1, r.Buffered()))
		x.write(block, func(start int64) { entries = append(entries, start) })
		if _, discardErr := r.Discard(len(block)); err == nil {
			err = discardErr
		}
		switch {
		case errors.Is(err, io.EOF):
			return slices.Clip(entries), nil
		case err != nil:
			return nil, muster.Errorf(muster.Internal, "cannot read the log %s: %w", path, err)
		}
	}
	return nil, ctx.Err()
}
