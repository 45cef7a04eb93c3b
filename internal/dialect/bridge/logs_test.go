package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestLogsOutlastAnOutage checks that lines arrive, and the final report after them, although the foreign server refused them for longer than
// LogDrainTimeout.
func TestLogsOutlastAnOutage(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	w.logDrainTimeout = 200 * time.Millisecond
	var recovered atomic.Bool
	p.logErr = func() error {
		if recovered.Load() {
			return nil
		}
		return muster.Errorf(muster.Unavailable, "it is away")
	}
	b, _ := w.startBridge(p)
	w.accept(b, echo("a"))
	w.succeed(w.waitOffered(1)[0], "one", "two")
	time.Sleep(5 * w.logDrainTimeout)
	if n := len(p.finalReports("a")); n != 0 {
		t.Errorf("%d final reports before the log", n)
	}
	recovered.Store(true)
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	if got := p.logLines("a"); !slices.Equal(got, []string{"one", "two"}) || len(p.finalReports("a")) != 1 {
		t.Errorf("the log %q, %d final reports", got, len(p.finalReports("a")))
	}
}

// TestLinesThatAreNeverTaken checks that refused lines are dropped and the final report is sent.
func TestLinesThatAreNeverTaken(t *testing.T) {
	for _, code := range []muster.Code{muster.Internal, muster.Invalid} {
		t.Run(string(code), func(t *testing.T) {
			w, p := newEnv(t), newFakeReporter()
			p.logErr = func() error { return muster.Errorf(code, "it does not like them") }
			b, _ := w.startBridge(p)
			w.accept(b, echo("a"))
			w.succeed(w.waitOffered(1)[0], "one")
			testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
			if got := p.logLines("a"); len(got) != 0 || len(p.finalReports("a")) != 1 {
				t.Errorf("the log %q, %d final reports", got, len(p.finalReports("a")))
			}
		})
	}
}

// TestMoreJobsThanLogStreams runs more jobs than an API key may have log streams: each log arrives, that of the jobs beyond LogLimiter after
// their end.
func TestMoreJobsThanLogStreams(t *testing.T) {
	const n = 120
	w, p := newEnv(t), newFakeReporter()
	big, err := w.fleet.Register(t.Context(), fleet.Facts{ID: "big", Kinds: []string{"echo"}, Resources: muster.Resources{CPUs: n, Memory: 1 << 40, Disk: 1 << 40, Slots: n}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := w.startBridge(p)
	for i := range n {
		w.accept(b, echo(fmt.Sprintf("j%d", i)))
	}
	var tasks []*fleet.Task
	testkit.Await(w.t, "all are offered", func() bool {
		tasks = append(w.worker.Tasks(), big.Tasks()...)
		return len(tasks) == n
	})
	for _, task := range tasks {
		if err := task.MarkStarted(); err != nil {
			t.Fatal(err)
		}
		if err := task.Log(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
	}
	countLogs := func() (count int) {
		for i := range n {
			if slices.Equal(p.logLines(fmt.Sprintf("j%d", i)), []string{"hello"}) {
				count++
			}
		}
		return count
	}
	testkit.Await(w.t, "some logs arrive while the jobs run", func() bool { return countLogs() >= 30 })
	for _, task := range tasks {
		if err := task.Finish(t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Await(w.t, "all are reported", func() bool { return b.Pending() == 0 })
	if got := countLogs(); got != n {
		t.Errorf("%d logs of %d arrived", got, n)
	}
}

// TestASpecIsSubmittedAsItIsStored kills the bridge between the submission of a job and its record: a spec that changes by encoding is
// still submitted once.
func TestASpecIsSubmittedAsItIsStored(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, err := bridge.New(bridge.Config{Client: w.client, Dir: w.bridgeDir, System: "tiny", Origin: "http://foreign", Log: w.log}, p)
	if err != nil {
		t.Fatal(err)
	}
	j := echo("a")
	j.Spec.Tasks[0].Where.Tags = []string{}
	j.Spec.Tasks[0].Env = map[string]string{"A": "x\xffy"}
	w.accept(b, j)
	w.crash(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	stored := w.bridgeDir
	w.bridgeDir = t.TempDir() // what a bridge does that is killed after the submission
	first, stop := w.startBridge(p)
	w.accept(first, j)
	testkit.Await(w.t, "it is submitted", func() bool { return w.jobs() == 1 })
	stop()
	w.bridgeDir = stored
	b, _ = w.startBridge(p)
	w.succeed(w.waitOffered(1)[0])
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	if got := p.finalReports("a"); len(got) != 1 || !got[0].Succeeded() || w.jobs() != 1 {
		t.Errorf("%d jobs, final reports %+v", w.jobs(), got)
	}
}

// TestLogWithAGapIsResumed stops a bridge after it has sent the first line of a log, and starts it when the middle of the log is left out: what is left arrives
// in order, and once except the first line, with a line that says so.
func TestLogWithAGapIsResumed(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, stop := w.startBridge(p)
	j := echo("a")
	j.Spec.Tasks[0].LogCap = muster.MinLogCap
	w.accept(b, j)
	task := w.waitOffered(1)[0]
	if err := errors.Join(task.MarkStarted(), task.Log(t.Context(), "first")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the first line arrives", func() bool { return len(p.logLines("a")) == 1 })
	w.crash(stop)
	const count = 20_000
	for n := 0; n < count; n += 500 {
		var lines []string
		for i := n; i < n+500; i++ {
			lines = append(lines, fmt.Sprintf("%05d %s", i, strings.Repeat("x", 60)))
		}
		if err := task.Log(t.Context(), lines...); err != nil {
			t.Fatal(err)
		}
	}
	w.succeed(task)
	b, _ = w.startBridge(p)
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	got := p.logLines("a")
	if len(got) > 1 && got[1] == "first" {
		got = got[1:] // the bridge was killed before it had stored that this line was sent
	}
	if len(got) < 100 || got[0] != "first" || !strings.HasPrefix(got[1], "00000 ") || !strings.HasPrefix(got[len(got)-1], fmt.Sprintf("%05d ", count-1)) {
		t.Fatalf("%d lines: %.300q", len(got), got)
	}
	gaps, last := 0, -1
	for _, line := range got[1:] {
		var n int
		if strings.Contains(line, "left out") {
			gaps++
		} else if _, err := fmt.Sscanf(line, "%05d ", &n); err != nil || n <= last || gaps == 0 && n != last+1 {
			t.Fatalf("%q follows line %d", line, last)
		} else {
			last = n
		}
	}
	if gaps != 1 || len(got) >= count {
		t.Errorf("%d lines with %d gaps", len(got), gaps)
	}
}
