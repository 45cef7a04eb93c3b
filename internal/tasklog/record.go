package tasklog

import (
	"errors"
	"io"
	"time"

	"github.com/muster-dev/muster"
)

// A record is a head of 10 bytes and its data:
//
//	byte  0     the stream: 'o', 'e', 's', 'u' or 'm'
//	bytes 1–6   milliseconds since 1970, unsigned, big endian
//	bytes 7–9   the length of the data, unsigned, big endian
//
// Nothing is between or around records, so a log may be cut and continued at any byte.
const headSize = 10

// MaxRecordData is the most data that one record holds, in bytes.
const MaxRecordData = 1 << 20

const maxMillis = 1<<48 - 1

// AppendRecord appends the encoding of r to dst. It splits data over MaxRecordData into
// several records, and writes a time before 1970 as 1970.
func AppendRecord(dst []byte, r Record) []byte {
	ms := uint64(min(max(r.At.UnixMilli(), 0), maxMillis))
	for data := r.Data; ; {
		part := data[:min(len(data), MaxRecordData)]
		n := len(part)
		dst = append(dst, byte(r.Stream),
			byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms),
			byte(n>>16), byte(n>>8), byte(n))
		dst = append(dst, part...)
		data = data[n:]
		if len(data) == 0 {
			return dst
		}
	}
}

// Decoder reads records. It buffers at most one record and a block of input.
type Decoder struct {
	r          io.Reader
	buf        []byte
	start, end int // buf[start:end] was read and not returned yet
	off        int64
	err        error
}

// NewDecoder returns a decoder of a log. r begins at the start of a record.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: r} }

// Offset returns the size in bytes of the records returned so far.
func (d *Decoder) Offset() int64 { return d.off }

// Next returns the next record; its Data is valid until the next call. It
// returns io.EOF after the last record, and io.ErrUnexpectedEOF if a part of a record
// follows it; after both, Next may be called again when the log may have
// grown. If the bytes are not a record, it returns an Invalid error, which is permanent.
func (d *Decoder) Next() (Record, error) {
	if d.err != nil {
		return Record{}, d.err
	}
	if err := d.fill(headSize); err != nil {
		return Record{}, err
	}
	h := d.buf[d.start:d.end]
	stream := Stream(h[0])
	n, ok := recordLength(h)
	if !ok {
		d.err = muster.Errorf(muster.Invalid, "the log is damaged: there is no record at byte %d", d.off)
		return Record{}, d.err
	}
	ms := int64(h[1])<<40 | int64(h[2])<<32 | int64(h[3])<<24 | int64(h[4])<<16 | int64(h[5])<<8 | int64(h[6])
	if err := d.fill(headSize + n); err != nil {
		return Record{}, err
	}
	whole := d.buf[d.start : d.start+headSize+n : d.start+headSize+n]
	d.start += len(whole)
	d.off += int64(len(whole))
	return Record{Stream: stream, At: time.UnixMilli(ms).UTC(), Data: whole[headSize:]}, nil
}

// recordLength returns how many bytes of data follow a head; ok is false if h is not a head.
func recordLength(h []byte) (n int, ok bool) {
	stream := Stream(h[0])
	n = int(h[7])<<16 | int(h[8])<<8 | int(h[9])
	return n, (stream == Stdout || stream == Stderr || stream == System || stream == Usage || stream == Progress) && n <= MaxRecordData
}

const blockSize = 32 << 10

// fill reads until the buffer has n bytes.
func (d *Decoder) fill(n int) error {
	for empty := 0; d.end-d.start < n; {
		if len(d.buf)-d.start < n {
			d.grow(n)
		}
		got, err := d.r.Read(d.buf[d.end:])
		d.end += got
		switch {
		case d.end-d.start >= n:
			return nil
		case errors.Is(err, io.EOF) && d.end > d.start:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case got > 0:
			empty = 0
		default:
			if empty++; empty == 100 {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// grow moves the buffered bytes to the start of a buffer of at least n bytes.
func (d *Decoder) grow(n int) {
	to := d.buf
	if len(to) < n {
		to = make([]byte, max(blockSize, n+n/4))
	}
	d.end = copy(to, d.buf[d.start:d.end])
	d.start, d.buf = 0, to
}
