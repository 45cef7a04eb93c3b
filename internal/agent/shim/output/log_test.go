package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// fakeLogs is a log on a disk with limited space.
type fakeLogs struct {
	data []byte
	room int
}

func (d *fakeLogs) Append(_ context.Context, _ muster.AttemptID, offset int64, data []byte) (int64, error) {
	if old := len(d.data) - int(offset); old < len(data) {
		data = data[old:]
		n := min(len(data), d.room)
		d.data, d.room = append(d.data, data[:n]...), d.room-n
		if n < len(data) {
			return int64(len(d.data)), syscall.ENOSPC
		}
	}
	return int64(len(d.data)), nil
}

// A full disk ends the log with the task's next output, not with records of Muster; a partial write is completed before others.
func TestFullDisk(t *testing.T) {
	line := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("line\n")})
	for free := range 60 {
		d := &fakeLogs{room: free}
		w, err := OpenLog(d, &run.StartSpec{}, func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		w.Record(tasklog.Usage, time.Now(), []byte(`{"cpu":1}`))
		select {
		case <-w.Failed():
			t.Fatalf("with space for %d bytes the log ends with a sample", free)
		default:
		}
		if partly := len(d.data) > int(w.offset); partly != (w.Failure() != nil) {
			t.Errorf("with space for %d bytes: wrote %d of %d bytes, error %v", free, w.offset, len(d.data), w.Failure())
		}
		d.room = 1000
		w.appendOutput(line)
		w.WriteLine("done")
		if err := w.Failure(); err != nil {
			t.Errorf("with space again: %v", err)
		}
		var got []tasklog.Stream
		for dec := tasklog.NewDecoder(bytes.NewReader(d.data)); ; {
			r, err := dec.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("with space for %d bytes the log is damaged: %v", free, err)
			}
			got = append(got, r.Stream)
		}
		if n := len(got); n < 2 || n > 3 || got[n-2] != tasklog.Stdout || got[n-1] != tasklog.System {
			t.Errorf("with space for %d bytes the log has %q", free, got)
		}
		d.room = 3
		w.appendOutput(line)
		select {
		case <-w.Failed():
		default:
			t.Error("a failed write of output does not end the log")
		}
	}
}

// Samples do not count as output, and end with one message; messages of Muster are still written.
func TestSampleLimit(t *testing.T) {
	d := &fakeLogs{room: 1 << 30}
	w, err := OpenLog(d, &run.StartSpec{LogCap: 1000}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	sample := bytes.Repeat([]byte("x"), 1<<20-10)
	for range sampleLimit>>20 + 3 {
		w.Record(tasklog.Usage, time.Now(), sample)
	}
	line := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("line\n")})
	for range 100 {
		w.appendOutput(line)
	}
	w.WriteLine("stopped")
	samples, lines, systemLines := 0, 0, []string(nil)
	for dec := tasklog.NewDecoder(bytes.NewReader(d.data)); ; {
		r, err := dec.Next()
		if err != nil {
			break
		}
		switch r.Stream {
		case tasklog.Usage:
			samples++
		case tasklog.System:
			systemLines = append(systemLines, string(r.Data))
		default:
			lines++
		}
	}
	want := []string{
		"usage samples end here: they are limited to 64MiB for each attempt\n",
		"output truncated: the log of an attempt is limited to 1000B\n", "stopped\n",
	}
	if samples != sampleLimit>>20 || lines != 1000/len(line) || !slices.Equal(systemLines, want) {
		t.Errorf("%d samples, %d lines, and the messages %q", samples, lines, systemLines)
	}
}
