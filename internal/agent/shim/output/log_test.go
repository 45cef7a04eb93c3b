package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// StartSegment implements run.Logs: the fake has no files.
func (d *fakeLogs) StartSegment(_ context.Context, _ muster.AttemptID, offset int64) (int64, error) {
	return offset, nil
}

func (d *fakeLogs) Drop(context.Context, muster.AttemptID, int64) error { return nil }

// A full disk ends the log with the task's next output, not with records of Muster; a partial write is completed before others.
func TestFullDisk(t *testing.T) {
	line := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: []byte("line\n")})
	for free := range 60 {
		d := &fakeLogs{room: free}
		w, err := OpenLog(d, &run.StartSpec{}, nil, func(int64) {})
		if err != nil {
			t.Fatal(err)
		}
		w.Record(tasklog.Usage, time.Now(), []byte(`{"cpu":1}`))
		select {
		case <-w.Failed():
			t.Fatalf("with space for %d bytes the log ends with a sample", free)
		default:
		}
		if partly := len(d.data) > int(w.writer.Size()); partly != (w.Failure() != nil) {
			t.Errorf("with space for %d bytes: wrote %d of %d bytes, error %v", free, w.writer.Size(), len(d.data), w.Failure())
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
	w, err := OpenLog(d, &run.StartSpec{}, nil, func(int64) {})
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
		"stopped\n",
	}
	if samples != sampleLimit>>20 || lines != 100 || !slices.Equal(systemLines, want) {
		t.Errorf("%d samples, %d lines, and the messages %q", samples, lines, systemLines)
	}
}

// Of a long output the beginning and the end are kept, and all samples and points.
func TestHeadAndTail(t *testing.T) {
	const limit, lines = 100_000, 20_000
	logs, err := tasklog.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	spec := &run.StartSpec{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}, LogCap: limit}
	grown := int64(0)
	w, err := OpenLog(logs, spec, nil, func(size int64) { grown = size })
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		w.appendOutput(tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, Data: fmt.Appendf(nil, "%d\n", i)}))
		switch i % 1000 {
		case 0:
			w.Record(tasklog.Usage, time.Now(), []byte("{}"))
		case 1:
			w.Record(tasklog.Progress, time.Now(), []byte("{}"))
		}
	}
	w.WriteLine("stopped")
	if err := w.Failure(); err != nil {
		t.Fatal(err)
	}
	if size, err := logs.Size(t.Context(), spec.Attempt); err != nil || size != grown {
		t.Errorf("the log ends at %d, %v, the worker knows %d", size, err, grown)
	}
	f, err := logs.Open(t.Context(), spec.Attempt, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count, output := map[tasklog.Stream]int{}, 0
	var last string
	for dec := tasklog.NewDecoder(f); ; {
		r, err := dec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if count[r.Stream]++; r.Stream == tasklog.Stdout {
			if first := fmt.Sprintln(count[r.Stream] - 1); count[tasklog.Gap] == 0 && string(r.Data) != first {
				t.Fatalf("line %s is %q", first, r.Data)
			}
			output += 10 + len(r.Data)
			last = string(r.Data)
		}
	}
	if last != fmt.Sprintln(lines-1) || output > limit || output < limit*3/4 {
		t.Errorf("%d bytes of output are kept, the last line is %q", output, last)
	}
	if count[tasklog.Gap] != 1 || count[tasklog.Usage] != lines/1000 || count[tasklog.Progress] != lines/1000 || count[tasklog.System] != 1 {
		t.Errorf("the log has %v", count)
	}
}
