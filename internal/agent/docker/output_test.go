package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"
)

// frame is a piece of output as engines send it.
func frame(stream byte, data string) []byte {
	b := append([]byte{stream, 0, 0, 0}, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[4:], uint32(len(data)))
	return append(b, data...)
}

func outputOf(r io.Reader) *Output { return newOutput(r, io.NopCloser(r)) }

func TestOutputFrames(t *testing.T) {
	sent := bytes.Join([][]byte{frame(0, "in"), frame(1, "out"), frame(2, "err"), frame(1, ""), frame(2, "skipped"), frame(1, "end")}, nil)
	want := []struct {
		stream int
		data   string
	}{{Stdout, "in"}, {Stdout, "out"}, {Stderr, "err"}, {Stdout, ""}, {Stderr, ""}, {Stdout, "end"}}
	o := outputOf(iotest.OneByteReader(bytes.NewReader(sent)))
	for i, w := range want {
		stream, size, err := o.Next()
		if err != nil || stream != w.stream || size != len(w.data) && i != 4 {
			t.Fatalf("piece %d is of %d, %d bytes, %v", i, stream, size, err)
		}
		if i == 4 {
			continue // what is not read is skipped
		}
		if b, err := io.ReadAll(o); err != nil || string(b) != w.data {
			t.Errorf("piece %d is %q, %v", i, b, err)
		}
	}
	if _, _, err := o.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestTruncatedOutput(t *testing.T) {
	whole := frame(1, "data")
	for cut := 1; cut < len(whole); cut++ {
		o := outputOf(bytes.NewReader(whole[:cut]))
		_, _, err := o.Next()
		if err == nil {
			_, err = io.ReadAll(o)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", cut, err)
		}
	}
	for _, wrong := range [][]byte{frame(3, "an error of the engine"), {1, 1, 0, 0, 0, 0, 0, 1, 'x'}, {1, 0, 0, 0, 0xff, 0, 0, 0}} {
		if _, _, err := outputOf(bytes.NewReader(wrong)).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("% x is taken: %v", wrong, err)
		}
	}
}

func TestSplitTimestamp(t *testing.T) {
	at, data, err := SplitTimestamp([]byte("2026-11-21T22:45:00.123456789Z a line\n"))
	if err != nil || string(data) != "a line\n" || !at.Equal(time.Date(2026, 11, 21, 22, 45, 0, 123456789, time.UTC)) {
		t.Errorf("%v, %q, %v", at, data, err)
	}
	for _, wrong := range []string{"", " ", "a line", "2026-11-21T22:45:00Z", "yesterday a line"} {
		if _, _, err := SplitTimestamp([]byte(wrong)); err == nil {
			t.Errorf("%q has a time", wrong)
		}
	}
}

// Output of an engine is read completely or refused, and nothing is read beyond it.
func FuzzOutput(f *testing.F) {
	f.Add(bytes.Join([][]byte{frame(1, "out"), frame(2, "err")}, nil))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 9, 'x'})
	f.Fuzz(func(t *testing.T, sent []byte) {
		o := outputOf(bytes.NewReader(sent))
		read := 0
		for {
			_, size, err := o.Next()
			if err != nil {
				if errors.Is(err, io.EOF) && read != len(sent) {
					t.Errorf("%d bytes of %d make a clean end", read, len(sent))
				}
				return
			}
			read += frameHeaderSize
			b, err := io.ReadAll(o)
			read += len(b)
			if err == nil && len(b) != size {
				t.Fatalf("a piece of %d bytes has %d", size, len(b))
			}
			if err != nil {
				return
			}
		}
	})
}
