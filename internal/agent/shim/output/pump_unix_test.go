//go:build unix

package output

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// slowLogs is a disk that blocks a task's output until released.
type slowLogs struct {
	fakeLogs

	asked, unblock chan struct{}
}

func (s *slowLogs) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if len(data) > 0 {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-s.unblock
	}
	return s.fakeLogs.Append(ctx, a, offset, data)
}

// printed returns a task's output in a log.
func printed(d fakeLogs) string {
	var got strings.Builder
	for dec := tasklog.NewDecoder(strings.NewReader(string(d.data))); ; {
		rec, err := dec.Next()
		if err != nil {
			return got.String()
		}
		got.Write(rec.Data)
	}
}

// failingListener is a Listener for tasks without events.
type failingListener struct{ testing.TB }

func (s failingListener) OnProgress(p muster.Progress) { s.Errorf("event %+v", p) }
func (s failingListener) OnPanic(err error)            { s.Error(err) }

func (s failingListener) OnParseError(source string, err error) { s.Errorf("%s: %v", source, err) }

// What a task printed before its end is in its log, even if the disk is slower than the drain timeout, and a process that cannot be killed
// holds the pipe open.
func TestSlowDiskLosesNothing(t *testing.T) {
	d := &slowLogs{fakeLogs{room: 1 << 30}, make(chan struct{}, 1), make(chan struct{})}
	log, err := OpenLog(d, &run.StartSpec{}, nil, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := NewPumps(log, failingListener{t}, &Buffers{}, 0)
	p.Start(r, tasklog.Stdout)
	text := "first\n"
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	<-d.asked
	rest := strings.Repeat("a line of output\n", 3000) + "the end"
	if _, err := w.WriteString(rest); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Drain(time.Millisecond)
	}()
	for !p.isCutOff() {
		time.Sleep(time.Millisecond)
	}
	close(d.unblock)
	<-done
	got := printed(d.fakeLogs)
	if want := text + rest; got != want {
		t.Errorf("the log has %d bytes of %d, with %.20q at the end", len(got), len(want), got[max(0, len(got)-20):])
	}
}

// Output is read even if the deadline for the rest of a line and that for the end of the pipe expire together, as after this process was
// stopped.
func TestCutoffAfterAReadDeadline(t *testing.T) {
	d := &fakeLogs{room: 1 << 30}
	log, err := OpenLog(d, &run.StartSpec{}, nil, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	text := "the end\n"
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	p := &pump{Pumps: NewPumps(log, failingListener{t}, &Buffers{}, 0), r: r, stream: tasklog.Stdout}
	p.pipes = append(p.pipes, r)
	defer r.Close()
	read, first := p.reader(), true
	p.run(func() (int, error) {
		if first {
			first = false
			p.cutOff()
			return 0, os.ErrDeadlineExceeded
		}
		return read()
	}, func(int) {})
	if got := printed(*d); got != text {
		t.Errorf("the log has %q", got)
	}
}

// A process that keeps writing to the pipe after the end does not block Drain.
func TestEndlessOutputIsTruncated(t *testing.T) {
	log, err := OpenLog(&fakeLogs{room: 1 << 30}, &run.StartSpec{}, nil, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPumps(log, failingListener{t}, &Buffers{}, 1<<40)
	p.Start(r, tasklog.Stdout)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := w.WriteString("more\n"); err != nil {
				ended <- err
				return
			}
		}
	}()
	p.Drain(time.Millisecond)
	if err := <-ended; err == nil {
		t.Error("the process is still writing")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// recordingListener records events and errors.
type recordingListener struct {
	failingListener

	events []muster.Progress
	errs   []error
}

func (s *recordingListener) OnProgress(p muster.Progress)     { s.events = append(s.events, p) }
func (s *recordingListener) OnParseError(_ string, err error) { s.errs = append(s.errs, err) }

// Values of secrets are replaced in output before it is split into lines, and in events before a text is cut.
func TestSecretsAreRedacted(t *testing.T) {
	value := "p4ssw0rd-" + strings.Repeat("0123456789", 6)
	redactor := redact.New([][]byte{[]byte(value)})
	d := &fakeLogs{room: 1 << 30}
	log, err := OpenLog(d, &run.StartSpec{}, redactor, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	listener := &recordingListener{failingListener: failingListener{t}}
	p := NewPumps(log, listener, &Buffers{}, 0)
	p.Start(r, tasklog.Stdout)
	long := strings.Repeat("x", 2*readSize-20) // the value is where the buffer ends
	for _, text := range []string{long, value[:20], value[20:] + "\n", "cat: " + value + ": Permission denied\n", "::muster step=\"" + value[:5], value[5:] + "\"\n", "p4ss"} {
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	p.Drain(testTimeout)
	log.WriteLine("a line of Muster with " + value)
	if got, want := printed(*d), long+"***\ncat: ***: Permission denied\np4ssa line of Muster with ***\n"; got != want {
		t.Errorf("the log has %d bytes of %d, with %.100q at the end", len(got), len(want), got[max(0, len(got)-100):])
	}
	if got := p.Denied(); got != "cat: ***: Permission denied\n" {
		t.Errorf("%.100q was denied", got)
	}

	path := filepath.Join(t.TempDir(), "events")
	text := `{"step":"` + strings.Replace(value, "p", `\u0070`, 1) + `"}` + "\n" + `{"step":"` + strings.Repeat("x", 180) + value + `"}` + "\n" +
		`{"loss":"` + value + `"}` + "\n" + `{"` + value + `":1}` + "\n{" + value + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	events := NewEvents(path, listener, redactor)
	events.Poll()
	events.Close()
	var steps []string
	for _, p := range listener.events {
		steps = append(steps, *p.Step)
	}
	if got, want := strings.Join(steps, "\n"), "***\n***\n"+strings.Repeat("x", 180)+"***"; got != want {
		t.Errorf("the steps are %s", got)
	}
	if got := fmt.Sprint(listener.errs); len(listener.errs) != 3 || strings.Contains(got, "p4ssw0rd") {
		t.Errorf("the errors are %s", got)
	}
}

// testTimeout is how long a test waits for something that must happen.
const testTimeout = time.Minute

// A task that makes its supervisor compare much is throttled as if it printed much.
func TestComparisonsAreThrottled(t *testing.T) {
	var value strings.Builder
	for i := range 100 {
		fmt.Fprintf(&value, "%s%04d", strings.Repeat("a", 492), i)
	}
	log, err := OpenLog(&fakeLogs{room: 1 << 30}, &run.StartSpec{}, redact.New([][]byte{[]byte(value.String())}), func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(strings.Repeat("a", 10_000)); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	p := &pump{Pumps: NewPumps(log, failingListener{t}, &Buffers{}, 0), r: r, stream: tasklog.Stdout, redacted: log.redactor.NewStream()}
	defer r.Close()
	cost := 0
	p.run(p.reader(), func(n int) { cost += n })
	if cost < 1<<20 {
		t.Errorf("it cost %d bytes", cost)
	}
}
