package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/fleet"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

// testTimeout bounds each wait of these tests.
const testTimeout = 60 * time.Second

// env is a Muster server. Its only worker is the test.
type env struct {
	t               *testing.T
	dir             string
	log             *slog.Logger
	client          *client.Client
	fleet           *fleet.Fleet
	worker          *fleet.Worker
	stop            func()
	bridgeDir       string // folder of the bridge
	logDrainTimeout time.Duration
	counts          *counts // of all bridges
}

// counts is a bridge.Metrics.
type counts struct {
	mu       sync.Mutex
	accepted int
	pending  int
	reported map[bool]int
	retried  map[string]int
}

func (c *counts) Accepted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted++
}

func (c *counts) Pending(delta int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending += delta
}

func (c *counts) Reported(accepted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported[accepted]++
}

func (c *counts) Retried(step string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retried[step]++
}

// String returns all counts.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d accepted, %d pending, reported %v, retried %v", c.accepted, c.pending, c.reported, c.retried)
}

type fleetGateway struct{ *fleet.Fleet }

func (fleetGateway) URL() string  { return "tiny://" }
func (fleetGateway) Ready() error { return nil }

func newEnv(t *testing.T) *env {
	t.Helper()
	w := &env{t: t, dir: t.TempDir(), bridgeDir: filepath.Join(t.TempDir(), "bridge"), log: testkit.Logger(t)}
	w.counts = &counts{reported: map[bool]int{}, retried: map[string]int{}}
	w.start()
	return w
}

// start starts the server in the same directory.
func (w *env) start() {
	w.t.Helper()
	tiny := dialect.System{Name: "tiny", New: func(_ context.Context, deps dialect.Deps) (dialect.Gateway, error) {
		f, err := fleet.Open(fleet.Config{
			Server: deps.Server, Dir: filepath.Join(deps.Dir, "fleet"), Log: deps.Log, System: "tiny", SilenceTimeout: time.Hour,
		})
		w.fleet = f
		return fleetGateway{f}, err
	}}
	server, err := serverd.New(w.t.Context(), serverd.Config{
		Private: true, Data: w.dir, Heartbeat: muster.Duration(400 * time.Millisecond), Version: "test",
		Dialects: []dialect.Config{{Name: "tiny"}}, Systems: []dialect.System{tiny},
	}, w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx := w.t.Context()
	w.stop = dialecttest.Background(w.t, server.Run)
	local, err := server.Local(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.client, err = client.New(local.URL, local.SubmitterKey, client.Options{HTTP: local.HTTP, RetryTimeout: 50 * time.Millisecond}); err != nil {
		w.t.Fatal(err)
	}
	w.worker, err = w.fleet.Register(ctx, fleet.Facts{ID: "w", Kinds: []string{"echo"}, Resources: muster.Resources{CPUs: 8, Memory: 1 << 30, Disk: 1 << 30, Slots: 64}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// fakeReporter is a foreign server that records reports.
type fakeReporter struct {
	mu         sync.Mutex
	reports    map[string][]bridge.FinalReport
	lines      map[string][]string
	progress   map[string]int
	fail       func(id string, n int) error // of Finish, by how often it was called for the job
	logErr     func() error                 // of Log; nil if it takes everything
	calls      map[string]int
	finishGate chan struct{} // closed when Finish may continue; nil at once
	reached    chan string   // ids whose Finish was called; nil for none
}

func newFakeReporter() *fakeReporter {
	return &fakeReporter{reports: map[string][]bridge.FinalReport{}, lines: map[string][]string{}, progress: map[string]int{}, calls: map[string]int{}}
}

func (p *fakeReporter) Progress(_ context.Context, j bridge.Job, _ muster.Job, _ []muster.Task) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress[j.ID]++
	return nil
}

func (p *fakeReporter) Log(_ context.Context, j bridge.Job, lines []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.logErr != nil {
		if err := p.logErr(); err != nil {
			return err
		}
	}
	p.lines[j.ID] = append(p.lines[j.ID], lines...)
	return nil
}

func (p *fakeReporter) Finish(ctx context.Context, j bridge.Job, end bridge.FinalReport) error {
	p.mu.Lock()
	p.calls[j.ID]++
	n := p.calls[j.ID]
	p.mu.Unlock()
	if p.fail != nil {
		if err := p.fail(j.ID, n); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.reports[j.ID] = append(p.reports[j.ID], end)
	p.mu.Unlock()
	if p.reached != nil {
		p.reached <- j.ID
	}
	if p.finishGate != nil {
		select {
		case <-p.finishGate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (p *fakeReporter) finalReports(id string) []bridge.FinalReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reports[id])
}

func (p *fakeReporter) logLines(id string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines[id])
}

// checkingReporter is a fakeReporter with FinishChecker.
type checkingReporter struct{ *fakeReporter }

func (p checkingReporter) Finished(_ context.Context, j bridge.Job) (bool, error) {
	return len(p.finalReports(j.ID)) > 0, nil
}

// startBridge runs a bridge in the same directory until the returned func is called.
func (w *env) startBridge(p bridge.Reporter) (*bridge.Bridge, func()) {
	w.t.Helper()
	b, err := bridge.New(bridge.Config{
		Client: w.client, Dir: w.bridgeDir, System: "tiny", Origin: "http://foreign", Log: w.log,
		ProgressInterval: 50 * time.Millisecond, RetryDelay: 10 * time.Millisecond, LogDrainTimeout: w.logDrainTimeout, Metrics: w.counts,
	}, p)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the bridge ended with %v", err)
			}
		})
	}
	w.t.Cleanup(stop)
	return b, stop
}

// crash has the next bridge start with the files that a kill -9 now leaves.
func (w *env) crash(stop func()) {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(w.bridgeDir)); err != nil {
		w.t.Fatal(err)
	}
	stop()
	w.bridgeDir = dir
}

func echo(id string) bridge.Job {
	return bridge.Job{ID: id, Meta: json.RawMessage(`{"from":"` + id + `"}`), Spec: muster.Spec{Tasks: []muster.TaskSpec{{Kind: "echo", Input: json.RawMessage(`{"n":1}`)}}}}
}

func (w *env) accept(b *bridge.Bridge, j bridge.Job) bool {
	w.t.Helper()
	accepted, err := b.Accept(w.t.Context(), j)
	if err != nil {
		w.t.Fatalf("accept %s: %v", j.ID, err)
	}
	return accepted
}

// waitOffered waits until the worker holds n tasks, and returns them.
func (w *env) waitOffered(n int) []*fleet.Task {
	w.t.Helper()
	var tasks []*fleet.Task
	testkit.Await(w.t, fmt.Sprintf("%d tasks are offered", n), func() bool {
		tasks = w.worker.Tasks()
		return len(tasks) >= n
	})
	return tasks
}

// succeed ends a task as succeeded.
func (w *env) succeed(task *fleet.Task, lines ...string) {
	w.t.Helper()
	err := task.MarkStarted()
	if len(lines) > 0 {
		err = errors.Join(err, task.Log(w.t.Context(), lines...))
	}
	if err := errors.Join(err, task.Finish(w.t.Context(), fleet.FinalReport{Outcome: muster.AttemptSucceeded, Result: json.RawMessage(`{"ok":true}`)})); err != nil {
		w.t.Fatal(err)
	}
}

func (w *env) jobs() int {
	w.t.Helper()
	n := 0
	for _, err := range w.client.Jobs(w.t.Context(), client.JobQuery{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		n++
	}
	return n
}

func TestAJobGoesThereAndBack(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, _ := w.startBridge(p)
	if !w.accept(b, echo("a")) || w.accept(b, echo("a")) {
		t.Fatal("an id must be accepted once")
	}
	task := w.waitOffered(1)[0]
	if err := task.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "progress is reported repeatedly", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.progress["a"] > 2
	})
	w.succeed(task, "one", "two", "three")
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	ends := p.finalReports("a")
	if len(ends) != 1 || !ends[0].Succeeded() || string(ends[0].Result()) != `{"ok":true}` || ends[0].Message() != "" {
		t.Fatalf("reported %+v", ends)
	}
	if got := p.lines["a"]; !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("the log is %q", got)
	}
	job := ends[0].Job
	if job.Labels["dialect"] != "tiny" {
		t.Errorf("labels %v", job.Labels)
	}
	if w.accept(b, echo("a")) {
		t.Error("a reported job is accepted again")
	}
	if tail, err := ends[0].LogTail(t.Context(), "", 2); err != nil || !slices.Equal(tail, []string{"two", "three"}) {
		t.Errorf("the tail is %q, %v", tail, err)
	}
}

// TestWhatIsCounted checks that each job is counted once, also over a restart of the bridge.
func TestWhatIsCounted(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	p.fail = func(id string, n int) error {
		switch {
		case id == "refused":
			return muster.Errorf(muster.NotFound, "what is that?")
		case n <= 2:
			return muster.Errorf(muster.Unavailable, "not now")
		default:
			return nil
		}
	}
	b, stop := w.startBridge(p)
	for _, id := range []string{"good", "refused", "later"} {
		w.accept(b, echo(id))
	}
	w.accept(b, echo("good"))
	tasks := w.waitOffered(3)
	if got, want := w.counts.String(), "3 accepted, 3 pending, reported map[], retried map[]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.succeed(tasks[0])
	w.succeed(tasks[1])
	testkit.Await(w.t, "two are reported", func() bool { return b.Pending() == 1 })
	stop()
	if got := w.counts.String(); !strings.HasPrefix(got, "3 accepted, 0 pending,") {
		t.Errorf("without a bridge: %s", got)
	}
	b, _ = w.startBridge(p)
	if got := w.counts.String(); !strings.HasPrefix(got, "3 accepted, 1 pending,") {
		t.Errorf("the next bridge: %s", got)
	}
	w.succeed(tasks[2])
	testkit.Await(w.t, "all are reported", func() bool { return b.Pending() == 0 })
	if got, want := w.counts.String(), "3 accepted, 0 pending, reported map[false:1 true:2], retried map[report:4]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFailureSaysWhy(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, _ := w.startBridge(p)
	w.accept(b, echo("a"))
	task := w.waitOffered(1)[0]
	if err := errors.Join(task.MarkStarted(), task.Finish(t.Context(), fleet.FinalReport{
		Outcome: muster.AttemptFailed, Reason: muster.ExitCode, ExitCode: new(3), Message: "exit code 3",
	})); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	if end := p.finalReports("a")[0]; end.Succeeded() || end.Message() != "exit code 3" || *end.Task().ExitCode != 3 {
		t.Errorf("reported %+v", end)
	}
	bad := echo("b")
	bad.Spec.Tasks[0].Kind = "no such kind"
	w.accept(b, bad)
	testkit.Await(w.t, "what Muster refuses is reported", func() bool { return b.Pending() == 0 })
	if end := p.finalReports("b")[0]; end.Succeeded() || end.Message() == "" || end.Task() != nil {
		t.Errorf("reported %+v", end)
	}
}

func TestCancel(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, _ := w.startBridge(p)
	w.accept(b, echo("a"))
	w.waitOffered(1)
	testkit.Await(w.t, "it can be cancelled", func() bool { return b.Cancel(t.Context(), "a") == nil })
	testkit.Await(w.t, "the final report", func() bool { return b.Pending() == 0 })
	if end := p.finalReports("a")[0]; end.State != muster.JobCancelled {
		t.Errorf("reported %+v", end)
	}
	if err := b.Cancel(t.Context(), "nobody"); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("cancelling an unknown job: %v", err)
	}
}

// TestReportsAreRepeated checks that a final report is repeated while the foreign server is unreachable, until it permanently refuses the
// report.
func TestReportsAreRepeated(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	p.fail = func(id string, n int) error {
		switch {
		case id == "never":
			return muster.Errorf(muster.NotFound, "no such job")
		case n < 4:
			return muster.Errorf(muster.Unavailable, "away")
		default:
			return nil
		}
	}
	b, stop := w.startBridge(p)
	w.accept(b, echo("later"))
	w.succeed(w.waitOffered(1)[0])
	w.accept(b, echo("never"))
	w.succeed(w.waitOffered(1)[0])
	testkit.Await(w.t, "both are over", func() bool { return b.Pending() == 0 })
	if n := len(p.finalReports("later")); n != 1 || p.calls["later"] != 4 || p.calls["never"] != 1 {
		t.Errorf("%d reports, calls %v", n, p.calls)
	}
	stop()
	b, _ = w.startBridge(p)
	if b.Pending() != 0 || w.accept(b, echo("later")) || w.accept(b, echo("never")) {
		t.Error("a restart forgets what was reported")
	}
}

// TestKilledBetweenAcceptAndSubmit checks that a bridge that submits a job again after a restart creates no second one.
func TestKilledBetweenAcceptAndSubmit(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	first, err := bridge.New(bridge.Config{Client: w.client, Dir: w.bridgeDir, System: "tiny", Origin: "http://foreign", Log: w.log}, p)
	if err != nil {
		t.Fatal(err)
	}
	w.accept(first, echo("a"))
	w.crash(func() {
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	})
	copied := w.bridgeDir
	_, stop := w.startBridge(p) // submits
	testkit.Await(w.t, "it is submitted", func() bool { return w.jobs() == 1 })
	stop()
	w.bridgeDir = filepath.Join(t.TempDir(), "again") // as it was before the submission
	if err := os.CopyFS(w.bridgeDir, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	b, _ := w.startBridge(p)
	w.succeed(w.waitOffered(1)[0])
	testkit.Await(w.t, "it is reported", func() bool { return b.Pending() == 0 })
	if n := w.jobs(); n != 1 || len(p.finalReports("a")) != 1 {
		t.Errorf("%d jobs, %d reports", n, len(p.finalReports("a")))
	}
}

// TestKilledWhileReporting checks that a final report that arrived before the bridge was killed is sent again only if the Reporter is no
// FinishChecker.
func TestKilledWhileReporting(t *testing.T) {
	for name, canCheck := range map[string]bool{"asked": true, "not asked": false} {
		t.Run(name, func(t *testing.T) {
			w, p := newEnv(t), newFakeReporter()
			p.finishGate, p.reached = make(chan struct{}), make(chan string, 4)
			newReporter := func() bridge.Reporter {
				if canCheck {
					return checkingReporter{p}
				}
				return p
			}
			b, stop := w.startBridge(newReporter())
			w.accept(b, echo("a"))
			w.succeed(w.waitOffered(1)[0])
			select {
			case <-p.reached:
			case <-time.After(testTimeout):
				t.Fatal("no report")
			}
			w.crash(stop)
			close(p.finishGate)
			b, _ = w.startBridge(newReporter())
			testkit.Await(w.t, "it is settled", func() bool { return b.Pending() == 0 })
			want := 2
			if canCheck {
				want = 1
			}
			if n := len(p.finalReports("a")); n != want {
				t.Errorf("%d final reports, want %d", n, want)
			}
		})
	}
}

// TestServerRestarts checks that jobs continue over a restart of the Muster server, and that new ones wait for it.
func TestServerRestarts(t *testing.T) {
	w, p := newEnv(t), newFakeReporter()
	b, stop := w.startBridge(p)
	w.accept(b, echo("a"))
	task := w.waitOffered(1)[0]
	if err := errors.Join(task.MarkStarted(), task.Log(t.Context(), "before")); err != nil {
		t.Fatal(err)
	}
	testkit.Await(w.t, "the first line arrives", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.lines["a"]) == 1
	})
	w.stop()
	w.accept(b, echo("b"))
	stop() // its client reaches the old server only
	w.start()
	b, _ = w.startBridge(p)
	for _, task := range w.waitOffered(2) {
		w.succeed(task, "after")
	}
	testkit.Await(w.t, "both are reported", func() bool { return b.Pending() == 0 })
	if len(p.finalReports("a")) != 1 || len(p.finalReports("b")) != 1 || w.jobs() != 2 {
		t.Errorf("reports %v, %d jobs", p.reports, w.jobs())
	}
	if got := p.lines["a"]; !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("the log is %q", got)
	}
}

func TestManyJobs(t *testing.T) {
	const n = 100
	w, p := newEnv(t), newFakeReporter()
	b, _ := w.startBridge(p)
	for i := range n {
		w.accept(b, echo(strconv.Itoa(i)))
	}
	testkit.Await(w.t, "all are reported", func() bool {
		for _, task := range w.worker.Tasks() {
			w.succeed(task)
		}
		return b.Pending() == 0
	})
	for i := range n {
		if got := p.finalReports(strconv.Itoa(i)); len(got) != 1 || !got[0].Succeeded() {
			t.Errorf("job %d: %d reports", i, len(got))
		}
	}
	if got := w.jobs(); got != n {
		t.Errorf("%d jobs", got)
	}
}

func TestOneBridgeOnAFolder(t *testing.T) {
	w := newEnv(t)
	w.startBridge(newFakeReporter())
	_, err := bridge.New(bridge.Config{Client: w.client, Dir: w.bridgeDir, Log: w.log}, newFakeReporter())
	if muster.CodeOf(err) != muster.Conflict {
		t.Errorf("a second bridge on the folder: %v", err)
	}
}

func TestIDsAreBounded(t *testing.T) {
	w := newEnv(t)
	b, _ := w.startBridge(newFakeReporter())
	for _, id := range []string{"", string(make([]byte, 2000))} {
		if _, err := b.Accept(t.Context(), echo(id)); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("an id of %d bytes: %v", len(id), err)
		}
	}
}

func TestCapacity(t *testing.T) {
	w := newEnv(t)
	b, _ := w.startBridge(newFakeReporter())
	var c bridge.Capacity
	testkit.Await(w.t, "the worker is active", func() bool {
		var err error
		c, err = b.Capacity(t.Context())
		return err == nil && len(c.Workers) == 1
	})
	if c.Resources.CPUs != 8 || c.Resources.Slots != 64 || !slices.Contains(c.Kinds, "echo") {
		t.Errorf("%+v", c)
	}
	all := []muster.Worker{
		{State: muster.WorkerActive, Resources: muster.Resources{CPUs: 1}, Load: &muster.Load{CPU: 1, Memory: 5}, Free: &muster.Resources{CPUs: 1}},
		{State: muster.WorkerActive, Resources: muster.Resources{CPUs: 3}, Load: &muster.Load{CPU: 0, Memory: 6}, Constrained: "hot", Free: &muster.Resources{CPUs: 3}},
		{State: muster.WorkerGone, Resources: muster.Resources{CPUs: 100}},
	}
	if c := bridge.SumCapacity(all); c.Resources.CPUs != 4 || c.Free.CPUs != 1 || c.Load.CPU != 0.25 || c.Load.Memory != 11 {
		t.Errorf("%+v", c)
	}
}
