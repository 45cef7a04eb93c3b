package bridge_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/fleet"
)

// TestLogsOutlastAnOutage has the foreign server take no lines for longer than a log may take: they arrive later, and the final report after them.
func TestLogsOutlastAnOutage(t *testing.T) {
	w, p := newWorld(t), newPort()
	w.drain = 200 * time.Millisecond
	var back atomic.Bool
	p.deaf = func() error {
		if back.Load() {
			return nil
		}
		return muster.Errorf(muster.Unavailable, "it is away")
	}
	b, _ := w.run(p)
	w.accept(b, echo("a"))
	w.succeed(w.offered(1)[0], "one", "two")
	time.Sleep(5 * w.drain)
	if n := len(p.ended("a")); n != 0 {
		t.Errorf("%d final reports before the log", n)
	}
	back.Store(true)
	w.until("the final report", func() bool { return b.Pending() == 0 })
	if got := p.said("a"); !slices.Equal(got, []string{"one", "two"}) || len(p.ended("a")) != 1 {
		t.Errorf("the log %q, %d final reports", got, len(p.ended("a")))
	}
}

// TestLinesThatAreNeverTaken drops lines to which the foreign server answers with errors; the final report is sent.
func TestLinesThatAreNeverTaken(t *testing.T) {
	for _, code := range []muster.Code{muster.Internal, muster.Invalid} {
		t.Run(string(code), func(t *testing.T) {
			w, p := newWorld(t), newPort()
			p.deaf = func() error { return muster.Errorf(code, "it does not like them") }
			b, _ := w.run(p)
			w.accept(b, echo("a"))
			w.succeed(w.offered(1)[0], "one")
			w.until("the final report", func() bool { return b.Pending() == 0 })
			if got := p.said("a"); len(got) != 0 || len(p.ended("a")) != 1 {
				t.Errorf("the log %q, %d final reports", got, len(p.ended("a")))
			}
		})
	}
}

// TestMoreJobsThanStreams has more jobs run at once than a server lets one API key have streams: each one's log arrives, while it runs for as many as
// Streams allows, and at its end for the others.
func TestMoreJobsThanStreams(t *testing.T) {
	const n = 120
	w, p := newWorld(t), newPort()
	big, err := w.fleet.Register(t.Context(), fleet.Facts{ID: "big", Kinds: []string{"echo"}, Resources: muster.Resources{CPUs: n, Memory: 1 << 40, Disk: 1 << 40, Slots: n}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := w.run(p)
	for i := range n {
		w.accept(b, echo(fmt.Sprintf("j%d", i)))
	}
	var tasks []*fleet.Task
	w.until("all are offered", func() bool {
		tasks = append(w.worker.Tasks(), big.Tasks()...)
		return len(tasks) == n
	})
	for _, task := range tasks {
		if err := task.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := task.Log(t.Context(), "hello"); err != nil {
			t.Fatal(err)
		}
	}
	with := func() (count int) {
		for i := range n {
			if slices.Equal(p.said(fmt.Sprintf("j%d", i)), []string{"hello"}) {
				count++
			}
		}
		return count
	}
	w.until("some logs arrive while the jobs run", func() bool { return with() >= 30 })
	for _, task := range tasks {
		if err := task.Finish(t.Context(), fleet.Ending{Outcome: muster.AttemptSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
	w.until("all are reported", func() bool { return b.Pending() == 0 })
	if got := with(); got != n {
		t.Errorf("%d logs of %d arrived", got, n)
	}
}

// TestASpecIsSubmittedAsItIsStored kills the bridge between the submission of a job and its note: a spec that is not the same after it was stored
// is submitted once all the same.
func TestASpecIsSubmittedAsItIsStored(t *testing.T) {
	w, p := newWorld(t), newPort()
	b, err := bridge.New(bridge.Config{Client: w.client, Dir: w.bridge, System: "tiny", Origin: "http://foreign", Log: w.log}, p)
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
	stored := w.bridge
	w.bridge = t.TempDir() // what a bridge does that is killed after the submission
	first, stop := w.run(p)
	w.accept(first, j)
	w.until("it is submitted", func() bool { return w.jobs() == 1 })
	stop()
	w.bridge = stored
	b, _ = w.run(p)
	w.succeed(w.offered(1)[0])
	w.until("the final report", func() bool { return b.Pending() == 0 })
	if got := p.ended("a"); len(got) != 1 || !got[0].Succeeded() || w.jobs() != 1 {
		t.Errorf("%d jobs, final reports %+v", w.jobs(), got)
	}
}
