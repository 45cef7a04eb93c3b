package tasklog_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/tasklog"
	"pgregory.net/rapid"
)

var records = rapid.Custom(func(t *rapid.T) tasklog.Record {
	return tasklog.Record{
		Stream: rapid.SampledFrom([]tasklog.Stream{tasklog.Stdout, tasklog.Stderr, tasklog.System, tasklog.Usage, tasklog.Progress}).Draw(t, "stream"),
		At:     time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "at")).UTC(),
		Data:   rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data"),
	}
})

// decodeAll decodes until the first error, which is io.EOF at a clean end.
func decodeAll(r io.Reader) (got []tasklog.Record, offset int64, err error) {
	d := tasklog.NewDecoder(r)
	for {
		rec, err := d.Next()
		if err != nil {
			return got, d.Offset(), err
		}
		rec.Data = bytes.Clone(rec.Data)
		got = append(got, rec)
	}
}

func TestDecoderIgnoresChunkBoundaries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(records).Draw(t, "records")
		var log []byte
		for _, r := range want {
			log = tasklog.AppendRecord(log, r)
		}
		readers := map[string]io.Reader{
			"at once":      bytes.NewReader(log),
			"byte by byte": iotest.OneByteReader(bytes.NewReader(log)),
			"with the end": iotest.DataErrReader(bytes.NewReader(log)),
		}
		for name, r := range readers {
			got, offset, err := decodeAll(r)
			if !errors.Is(err, io.EOF) || offset != int64(len(log)) {
				t.Fatalf("%s: ended at %d with %v, want %d and EOF", name, offset, err, len(log))
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}
		}
	})
}

func TestDecoderResumesAfterAPartialRecord(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(records, 1, 5).Draw(t, "records")
		var log []byte
		ends := map[int64]int{0: 0} // where a record ends, and how many there are up to it
		for i, r := range want {
			log = tasklog.AppendRecord(log, r)
			ends[int64(len(log))] = i + 1
		}
		cut := rapid.IntRange(0, len(log)).Draw(t, "cut")
		first, offset, err := decodeAll(bytes.NewReader(log[:cut]))
		n, whole := ends[offset]
		if !whole || n != len(first) {
			t.Fatalf("offset %d after %d records is not the end of the last one", offset, len(first))
		}
		wantErr := io.ErrUnexpectedEOF
		if int64(cut) == offset {
			wantErr = io.EOF
		}
		if !errors.Is(err, wantErr) {
			t.Fatalf("cut at %d with offset %d: %v, want %v", cut, offset, err, wantErr)
		}
		rest, _, err := decodeAll(bytes.NewReader(log[offset:]))
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, append(first, rest...), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestDecoderContinuesWhenALogGrows(t *testing.T) {
	t.Parallel()
	log := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(5).UTC(), Data: []byte("hello\n")})
	var src bytes.Buffer
	d := tasklog.NewDecoder(&src)
	for i, b := range log {
		want := io.ErrUnexpectedEOF
		if i == 0 {
			want = io.EOF
		}
		if _, err := d.Next(); !errors.Is(err, want) || d.Offset() != 0 {
			t.Fatalf("after %d bytes: %v at %d, want %v at 0", i, err, d.Offset(), want)
		}
		src.WriteByte(b)
	}
	r, err := d.Next()
	if err != nil || string(r.Data) != "hello\n" {
		t.Fatalf("got %q, %v", r.Data, err)
	}
}

func TestLongDataBecomesSeveralRecords(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), tasklog.MaxRecordData/16*5/2)
	got, _, err := decodeAll(bytes.NewReader(tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stderr, Data: data})))
	if !errors.Is(err, io.EOF) || len(got) != 3 {
		t.Fatalf("%d records and %v, want 3", len(got), err)
	}
	var joined []byte
	for _, r := range got {
		if len(r.Data) > tasklog.MaxRecordData || r.Stream != tasklog.Stderr || r.At.UnixMilli() != 0 {
			t.Fatalf("a record of %d bytes on %c at %v", len(r.Data), r.Stream, r.At)
		}
		joined = append(joined, r.Data...)
	}
	if !bytes.Equal(joined, data) {
		t.Fatal("the data differs from what was written")
	}
}

func TestDecoderErrorIsPermanent(t *testing.T) {
	t.Parallel()
	good := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("x")})
	for name, bad := range map[string][]byte{
		"unknown stream": append(bytes.Clone(good), make([]byte, 10)...),
		"too long":       append(bytes.Clone(good), 'o', 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff),
	} {
		d := tasklog.NewDecoder(bytes.NewReader(bad))
		if _, err := d.Next(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 {
			if _, err := d.Next(); muster.CodeOf(err) != muster.Invalid {
				t.Fatalf("%s: %v, want an Invalid error", name, err)
			}
		}
		if d.Offset() != int64(len(good)) {
			t.Fatalf("%s: offset %d, want %d", name, d.Offset(), len(good))
		}
	}
}

// A decoded record encodes to exactly the same bytes.
func FuzzDecoder(f *testing.F) {
	log := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, At: time.UnixMilli(1), Data: []byte("hello\n")})
	f.Add(log)
	f.Add(log[:len(log)-1])
	f.Add(append(bytes.Clone(log), 0))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, offset, err := decodeAll(bytes.NewReader(in))
		var out []byte
		for _, r := range got {
			out = tasklog.AppendRecord(out, r)
		}
		if !bytes.Equal(out, in[:offset]) {
			t.Fatalf("%d bytes of %q encode to %q", offset, in, out)
		}
		switch {
		case errors.Is(err, io.EOF) && offset != int64(len(in)):
			t.Fatalf("a clean end at %d of %d", offset, len(in))
		case errors.Is(err, io.ErrUnexpectedEOF) && offset >= int64(len(in)):
			t.Fatalf("a cut record after the end: %d of %d", offset, len(in))
		}
	})
}
