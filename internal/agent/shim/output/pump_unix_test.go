//go:build unix

package output

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// slow is a disk that takes nothing of a task's output until it is told to.
type slow struct {
	disk

	asked, gate chan struct{}
}

func (s *slow) Append(ctx context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if len(data) > 0 {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-s.gate
	}
	return s.disk.Append(ctx, a, offset, data)
}

// printed is what a log has of a task's output.
func printed(d disk) string {
	var got strings.Builder
	for dec := tasklog.NewDecoder(strings.NewReader(string(d.data))); ; {
		rec, err := dec.Next()
		if err != nil {
			return got.String()
		}
		got.Write(rec.Data)
	}
}

// said is a Listener to tasks that say nothing.
type said struct{ testing.TB }

func (s said) Said(p muster.Progress) { s.Errorf("it said %+v", p) }
func (s said) Failed(err error)       { s.Error(err) }

func (s said) Misunderstood(what string, err error) { s.Errorf("%s: %v", what, err) }

// What a task printed before its end is in its log, also where the disk stands still for
// longer than anybody waits for more, and something that cannot be killed holds the pipe open.
func TestASlowDiskLosesNothing(t *testing.T) {
	d := &slow{disk{room: 1 << 30}, make(chan struct{}, 1), make(chan struct{})}
	log, err := Take(d, &run.Start{}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := NewPumps(log, said{t}, &Buffers{}, 0)
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
		p.Finish(time.Millisecond)
	}()
	for !p.cutOff() {
		time.Sleep(time.Millisecond)
	}
	close(d.gate)
	<-done
	got := printed(d.disk)
	if want := text + rest; got != want {
		t.Errorf("the log has %d bytes of %d, with %.20q at the end", len(got), len(want), got[max(0, len(got)-20):])
	}
}

// What was printed is read also where the wait for the rest of a line and the one for the end of the pipe end at once,
// as they do when this process stood still.
func TestTheCutRightBehindAnotherWait(t *testing.T) {
	d := &disk{room: 1 << 30}
	log, err := Take(d, &run.Start{}, func(int64) {})
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
	p := &pump{Pumps: NewPumps(log, said{t}, &Buffers{}, 0), r: r, stream: tasklog.Stdout}
	p.ends = append(p.ends, r)
	defer p.close()
	read, first := p.reader(), true
	p.run(func() (int, error) {
		if first {
			first = false
			p.cut()
			return 0, os.ErrDeadlineExceeded
		}
		return read()
	}, func(int) {})
	if got := printed(*d); got != text {
		t.Errorf("the log has %q", got)
	}
}

// Who goes on to print into a pipe that nobody could take from it keeps nobody.
func TestWhoPrintsForEverIsCutOff(t *testing.T) {
	log, err := Take(&disk{room: 1 << 30}, &run.Start{}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPumps(log, said{t}, &Buffers{}, 1<<40)
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
	p.Finish(time.Millisecond)
	if err := <-ended; err == nil {
		t.Error("it prints on")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
