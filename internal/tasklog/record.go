package tasklog

import (
	"bufio"
	"errors"
	"io"
	"time"

	"github.com/muster-dev/muster"
)

// A record is a head of 10 bytes and its data:
//
//	byte  0     the stream: 'o', 'e', 's', 'u', 'm' or 'g'
//	bytes 1–6   milliseconds since 1970, unsigned, big endian
//	bytes 7–9   the length of the data, unsigned, big endian
//
// Nothing is between or around records, so a log may be cut and continued at any byte.
//
// Records of the stream 'g' are not part of a log. They are where its offsets continue after a gap: their data is one offset, at which the
// next record begins, or for the mark of the gap its size and then that offset.
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
	r     *bufio.Reader
	start int64 // of the last record
	off   int64
	err   error
}

const blockSize = 32 << 10

// NewDecoder returns a decoder of a log. r begins at the start of a record.
func NewDecoder(r io.Reader) *Decoder { return NewDecoderAt(r, 0) }

// NewDecoderAt returns a decoder of a log from an offset on, at which r begins.
func NewDecoderAt(r io.Reader, offset int64) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, blockSize), start: offset, off: offset}
}

// Start returns the offset in the log of the last record returned.
func (d *Decoder) Start() int64 { return d.start }

// Offset returns the offset in the log after the last record returned.
func (d *Decoder) Offset() int64 { return d.off }

// Next returns the next record; its Data is valid until the next call. Of a gap it returns the samples that were kept of it, and a
// record of the stream Gap, which takes the place of the last of the bytes that are left out. It
// returns io.EOF after the last record, and io.ErrUnexpectedEOF if a part of a record
// follows it; after both, Next may be called again when the log may have
// grown. If the bytes are not a record, it returns an Invalid error, which is permanent.
func (d *Decoder) Next() (Record, error) {
	if d.err != nil {
		return Record{}, d.err
	}
	for {
		r, whole, err := d.peekRecord()
		if err != nil {
			return Record{}, err
		}
		d.start = d.off
		if r.Stream != Gap {
			_, _ = d.r.Discard(whole) // they are in the buffer
			d.off += int64(whole)
			return r, nil
		}
		size, to, err := parseGap(r.Data, d.off)
		if err != nil {
			d.err = err
			return Record{}, err
		}
		_, _ = d.r.Discard(whole)
		d.off = to
		if size > 0 {
			r.Data = gapLine(size)
			return r, nil
		}
	}
}

// peekRecord returns the next record without consuming it, and its size in bytes.
func (d *Decoder) peekRecord() (r Record, size int, err error) {
	h, err := d.peek(headSize)
	if err != nil {
		return Record{}, 0, err
	}
	stream := Stream(h[0])
	n, ok := recordLength(h)
	if !ok {
		d.err = muster.Errorf(muster.Invalid, "the log is damaged: there is no record at byte %d", d.off)
		return Record{}, 0, d.err
	}
	ms := int64(h[1])<<40 | int64(h[2])<<32 | int64(h[3])<<24 | int64(h[4])<<16 | int64(h[5])<<8 | int64(h[6])
	whole, err := d.peek(headSize + n)
	if err != nil {
		return Record{}, 0, err
	}
	return Record{Stream: stream, At: time.UnixMilli(ms).UTC(), Data: whole[headSize:len(whole):len(whole)]}, len(whole), nil
}

// peek returns the next n bytes without consuming them.
func (d *Decoder) peek(n int) ([]byte, error) {
	if n > d.r.Size() {
		d.r = bufio.NewReaderSize(d.r, n+n/4)
	}
	b, err := d.r.Peek(n)
	if len(b) > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// recordLength returns how many bytes of data follow a head; ok is false if h is not a head.
func recordLength(h []byte) (n int, ok bool) {
	stream := Stream(h[0])
	n = int(h[7])<<16 | int(h[8])<<8 | int(h[9])
	return n, (stream == Stdout || stream == Stderr || stream == System || stream == Usage || stream == Progress || stream == Gap) && n <= MaxRecordData
}
