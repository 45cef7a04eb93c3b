//go:build unix

package shim

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/wire"
	"github.com/muster-dev/muster/internal/bootclock"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

// Tests of restarts of the worker.

func TestTaskSurvivesAKilledWorker(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	w := startWorker(t, dir)
	s := shellTask(t, `echo '::muster progress=0.25 step="one" loss=3'; i=0; while [ ! -e go ]; do echo line $i; i=$((i+1)); sleep 0.01; done
		echo '::muster step="two" acc=1'; echo last; exit 42`)
	w.do(workerCommand{Start: s})
	testkit.Await(t, "output", func() bool { return len(records(t, dir, s.Attempt)) > 3 })
	w.kill()
	seen := len(records(t, dir, s.Attempt))
	testkit.Await(t, "output without a worker", func() bool { return len(records(t, dir, s.Attempt)) > seen+3 })

	c := openDetached(t, dir)
	h := recoveredAttempt(t, c)
	if d := cmp.Diff(*s, h.Start); d != "" {
		t.Errorf("the recovered spec differs: %s", d)
	}
	if h.Exit != nil || h.Report != nil || h.Started == 0 || h.LogSize == 0 || h.PID.PID == 0 {
		t.Errorf("%+v", h)
	}
	p, k := adopt(t, c, h)
	if got, size := k.last(); got.Step == nil || *got.Step != "one" || got.Metrics["loss"] != 3 || size < h.LogSize {
		t.Errorf("earlier events are lost: %+v, %d bytes", got, size)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 42 || x.Stopped != nil {
		t.Errorf("%+v", x)
	}
	if got, _ := k.last(); *got.Step != "two" || got.Metrics["acc"] != 1 || *got.Progress != 0.25 {
		t.Errorf("progress %+v", got)
	}
	all := records(t, dir, s.Attempt)
	var points []string
	all = slices.DeleteFunc(all, func(r tasklog.Record) bool {
		if r.Stream == tasklog.Progress {
			points = append(points, string(r.Data))
		}
		return r.Stream == tasklog.Progress
	})
	inOrder(t, all) // a point has the time when it was parsed, the lines around it when they were read
	if got := strings.Join(points, " "); got != `{"progress":0.25,"step":"one","metrics":{"loss":3}} {"step":"two","metrics":{"acc":1}}` {
		t.Errorf("the log has the points %s", got)
	}
	for i, r := range all[:len(all)-1] {
		if want := "line " + strconv.Itoa(i) + "\n"; string(r.Data) != want {
			t.Fatalf("record %d is %q", i, r.Data)
		}
	}
	if got := string(all[len(all)-1].Data); got != "last\n" {
		t.Errorf("the last record is %q", got)
	}
	if age := all[1].At; age.After(h.Started.Std().Add(testTimeout)) {
		t.Errorf("a line of %s is stamped %s", h.Started, age)
	}
}

func TestEventsWithoutAWorkerAreReported(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	w := startWorker(t, dir)
	ends, dies, late, lost := shellTask(t, "echo x; sleep 0.3; exit 7"), shellTask(t, "sleep 0.3; kill -SEGV $$"), shellTask(t, "exec sleep 1000"), shellTask(t, "exec sleep 1000")
	late.Timeout = 200 * time.Millisecond
	lost.Lease = 300 * time.Millisecond
	settled := shellTask(t, "exit 0")
	for _, s := range []*run.StartSpec{ends, dies, late, lost, settled} {
		w.do(workerCommand{Start: s})
	}
	report := &muster.Report{Attempt: settled.Attempt, Outcome: muster.AttemptSucceeded, Result: []byte(`{"a":1}`), FinishedAt: 5}
	contact := bootclock.Now() - time.Second
	w.do(workerCommand{Contact: contact})
	w.do(workerCommand{Settle: report}) // which returns when all earlier frames are sent
	w.kill()
	for _, s := range []*run.StartSpec{ends, dies, late, lost} {
		testkit.Await(t, "the end of its process", func() bool { return len(taggedPIDs(s.EnvTag)) == 0 })
	}
	c := openDetached(t, dir)
	if c.LastContact() != contact {
		t.Errorf("the last contact was %s, not %s", contact, c.LastContact())
	}
	byID := map[muster.AttemptID]*run.Recovered{}
	for _, h := range c.Recovered() {
		byID[h.Start.Attempt] = &h
	}
	exit := func(s *run.StartSpec) *run.Exit {
		h := byID[s.Attempt]
		if h == nil {
			t.Fatalf("%s is not recovered", s.Attempt)
		}
		p, _ := adopt(t, c, h)
		return waitTask(t, p)
	}
	if x := exit(ends); x.Code != 7 {
		t.Errorf("%+v", x)
	}
	if x := exit(dies); x.Signal != "SIGSEGV" {
		t.Errorf("%+v", x)
	}
	if x := exit(late); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptTimedOut {
		t.Errorf("%+v", x)
	}
	if x := exit(lost); x.Stopped == nil || x.Stopped.Reason != muster.WorkerLost {
		t.Errorf("%+v", x)
	}
	if d := cmp.Diff(report, byID[settled.Attempt].Report); d != "" {
		t.Errorf("the saved report is lost: %s", d)
	}
}

func TestAnotherWorkerDisplacesTheFirst(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	one := openDetached(t, dir)
	s := shellTask(t, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done")
	p, _ := startTask(t, one, s)
	waitReady(t, dir, s)
	two := openDetached(t, dir)
	q, _ := adopt(t, two, recoveredAttempt(t, two))
	if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Reason != muster.WorkerInternal || !strings.Contains(x.Stopped.Message, "took over") {
		t.Errorf("the first worker received %+v", x)
	}
	if q.Exit() != nil {
		t.Fatal("the task ended with the worker")
	}
	q.Stop(&run.Stopped{Outcome: muster.AttemptCancelled, Reason: muster.CancelledByUser}, muster.Kill{})
	if x := waitTask(t, q); x.Code != 9 {
		t.Errorf("%+v", x)
	}
}

func TestShimOfAnotherBuildKeepsItsTasks(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	old := openClient(t, dir, mode{command: shimCommand()}, func(c *Config) { c.Build = "old" })
	s := shellTask(t, "echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 3")
	startTask(t, old, s)
	waitReady(t, dir, s)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	c := openDetached(t, dir)
	p, _ := adopt(t, c, recoveredAttempt(t, c))
	next := shellTask(t, "exit 4")
	q, _ := startTask(t, c, next)
	if x := waitTask(t, q); x.Code != 4 {
		t.Errorf("%+v", x)
	}
	if homes, err := listStateDirs(dir); err != nil || len(homes) != 2 {
		t.Errorf("%d shims, %v; want the old one and the new one", len(homes), err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	c.Forget(s.Attempt, next.Attempt)
	testkit.Await(t, "the end of the old shim, which holds nothing", func() bool { homes, _ := listStateDirs(dir); return len(homes) == 1 })
}

func TestIdleShimExits(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "exit 0")
	p, _ := startTask(t, c, s)
	waitTask(t, p)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	shim := homes[0].pid()
	c.Forget(s.Attempt)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the end of the shim", func() bool { return !isRunning(shim) })
	if homes, err := listStateDirs(dir); err != nil || len(homes) != 0 {
		t.Errorf("its directory still exists: %v %v", homes, err)
	}
}

// isRunning reports whether a process runs and is not a zombie.
func isRunning(p run.Pid) bool {
	s := procState(p.PID)
	return s != 0 && s != 'Z'
}

func TestKilledShimEndsItsTasksAndIsReplaced(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "trap '' TERM; (setsid sh -c 'trap \"\" TERM; while :; do sleep 0.02; done' &) ; echo ready; while :; do sleep 0.02; done")
	p, _ := startTask(t, c, s)
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	if err := syscall.Kill(homes[0].pid().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Stopped == nil || x.Stopped.Outcome != muster.AttemptFailed || x.Stopped.Reason != muster.WorkerInternal ||
		!strings.Contains(x.Stopped.Message, "shim") {
		t.Errorf("%+v", x)
	}
	if left := taggedPIDs(s.EnvTag); len(left) > 0 {
		t.Errorf("processes %v survive", left)
	}
	p.AppendLog(tasklog.System, []byte("in vain\n"))
	p.SaveReport(&muster.Report{Attempt: s.Attempt})
	c.Forget(s.Attempt)
	q, _ := startTask(t, c, shellTask(t, "exit 6"))
	if x := waitTask(t, q); x.Code != 6 {
		t.Errorf("%+v", x)
	}
}

func TestOrphansOfAKilledShimAreKilled(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	w := startWorker(t, dir)
	s := shellTask(t, "trap '' TERM HUP; setsid sleep 1000 & echo ready; while :; do sleep 0.02; done")
	w.do(workerCommand{Start: s})
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	if err := syscall.Kill(homes[0].pid().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.kill()
	c := openDetached(t, dir)
	if left := taggedPIDs(s.EnvTag); len(left) > 0 {
		t.Errorf("processes %v survive", left)
	}
	if len(c.Recovered()) != 0 {
		t.Errorf("recovered %v without a shim", c.Recovered())
	}
	if homes, err := listStateDirs(dir); err != nil || len(homes) != 0 {
		t.Errorf("its directory still exists: %v %v", homes, err)
	}
}

func TestTerminatedShimStopsItsTasks(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
	p, _ := startTask(t, c, s)
	waitReady(t, dir, s)
	endShims(dir)
	if x := waitTask(t, p); x.Code != 0 || x.Stopped == nil || x.Stopped.Reason != muster.WorkerShutdown {
		t.Errorf("%+v", x)
	}
	// It accepts no new tasks, and the worker, which still runs, needs a shim that does.
	p, _ = startTask(t, c, shellTask(t, "exit 3"))
	if x := waitTask(t, p); x.Code != 3 {
		t.Errorf("%+v", x)
	}
	c.Forget(s.Attempt)
	testkit.Await(t, "the end of the shim", func() bool { homes, _ := listStateDirs(dir); return len(homes) == 1 })
}

func TestLongDataDirPath(t *testing.T) {
	needShims(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 60))
	c := openDetached(t, dir)
	p, _ := startTask(t, c, shellTask(t, "exit 8"))
	if x := waitTask(t, p); x.Code != 8 {
		t.Errorf("%+v", x)
	}
}

// A hung worker does not block its tasks, their logs, or the next worker.
func TestHangingWorkerDoesNotBlockTheShim(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	w := startWorker(t, dir)
	s := shellTask(t, `i=0; while [ $i -lt 20000 ]; do echo "::muster progress=0.5 m$((i % 200))=1"; i=$((i+1)); done; head -c 8000000 /dev/zero | tr '\0' x; echo; exit 5`)
	w.do(workerCommand{Start: s})
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the end of the task", func() bool { return len(taggedPIDs(s.EnvTag)) == 0 })
	c := openDetached(t, dir)
	h := recoveredAttempt(t, c)
	p, k := adopt(t, c, h)
	if x := waitTask(t, p); x.Code != 5 {
		t.Errorf("%+v", x)
	}
	if got := printed(t, dir, s.Attempt, tasklog.Stdout); len(got) != 8_000_001 {
		t.Errorf("the output has %d bytes", len(got))
	}
	if got, _ := k.last(); len(got.Metrics) != progress.MaxMetrics || got.Progress == nil {
		t.Errorf("%d metrics were reported, want %d", len(got.Metrics), progress.MaxMetrics)
	}
}

func TestOnlyTheWorkerCanConnect(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	c := openDetached(t, dir)
	s := shellTask(t, "echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 2")
	p, _ := startTask(t, c, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		conn, err := homes[0].dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		var f wire.ToWorker
		if err := wire.NewFrameReader(conn).Next(&f); err == nil {
			t.Errorf("%s: unexpected reply %+v", what, f)
		}
	}
	wrong, err := wire.AppendFrame(nil, &wire.ToShim{Hello: &wire.Hello{Protocol: wire.Protocol, Key: "guessed"}})
	if err != nil {
		t.Fatal(err)
	}
	none, err := wire.AppendFrame(nil, &wire.ToShim{Start: shellTask(t, "touch stolen")})
	if err != nil {
		t.Fatal(err)
	}
	refused("a wrong key", wrong)
	refused("no hello", none)
	refused("a frame without end", []byte{0xff, 0xff, 0xff, 0xff})
	refused("nonsense", []byte{0, 0, 0, 2, 'x', 'y'})
	for _, f := range []string{homes[0].path, filepath.Join(homes[0].path, keyFile)} {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := waitTask(t, p); x.Code != 2 {
		t.Errorf("rejected connections had an effect: %+v", x)
	}
}

func TestShimOfAnotherProtocolIsStopped(t *testing.T) {
	needShims(t)
	dir := t.TempDir()
	w := startWorker(t, dir)
	s := shellTask(t, "echo ready; exec sleep 1000")
	w.do(workerCommand{Start: s})
	waitReady(t, dir, s)
	homes, err := listStateDirs(dir)
	if err != nil || len(homes) != 1 {
		t.Fatalf("%d state directories, %v", len(homes), err)
	}
	shim := homes[0].pid()
	w.kill()
	// A worker that does not know the key of a shim cannot use it.
	if err := os.WriteFile(filepath.Join(homes[0].path, keyFile), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := openDetached(t, dir)
	if len(c.Recovered()) != 0 || isRunning(shim) || len(taggedPIDs(s.EnvTag)) > 0 {
		t.Errorf("attempts %v, shim running %t, its task %v", c.Recovered(), isRunning(shim), taggedPIDs(s.EnvTag))
	}
}
