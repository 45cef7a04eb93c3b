package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	core "github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/workerd"
)

// fakeFleet is a Muster server that lists workers, and an Adapter.
type fakeFleet struct {
	mu      sync.Mutex
	workers []muster.Worker
	broken  bool
	fail    map[string]error // what Run returns for a worker, once
	report  chan struct{}    // what a bridge that takes nothing more waits for
	events  []string
}

func (*fakeFleet) Flags(bool) []cli.Flag                 { return nil }
func (*fakeFleet) Notes() []string                       { return nil }
func (*fakeFleet) ConfigureWorker(*workerd.Config) error { return nil }
func (f *fakeFleet) record(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, event)
}
func (f *fakeFleet) set(change func(f *fakeFleet)) { f.mu.Lock(); defer f.mu.Unlock(); change(f) }

func (f *fakeFleet) Run(ctx context.Context, deps Deps) error {
	f.mu.Lock()
	err := f.fail[deps.ID]
	delete(f.fail, deps.ID)
	f.mu.Unlock()
	f.record("start " + deps.ID)
	defer f.record("end " + deps.ID)
	if err != nil {
		return err
	}
	select {
	case <-deps.AcceptCtx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-f.report:
	case <-ctx.Done():
	}
	return nil
}

func (f *fakeFleet) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"workers": f.workers})
}

// await waits for events in this order, with others between them.
func (f *fakeFleet) await(t *testing.T, want ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		got := slices.Clone(f.events)
		f.mu.Unlock()
		rest := got
		for _, w := range want {
			i := slices.Index(rest, w)
			if i < 0 {
				rest = nil
				break
			}
			rest = rest[i+1:]
		}
		if rest != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

func (f *fakeFleet) serve(t *testing.T) (stop func() error) {
	t.Helper()
	return f.serveDir(t, t.TempDir())
}

func (f *fakeFleet) serveDir(t *testing.T, dir string) (stop func() error) {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "mst_x", client.Options{RetryTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	deps := Deps{Client: c, AcceptCtx: ctx, Dir: dir, Log: slog.New(slog.DiscardHandler)}
	done := make(chan error, 1)
	go func() {
		done <- (&workerBridges{adapter: f, env: deps, interval: 5 * time.Millisecond, running: map[muster.WorkerID]*workerBridge{}}).serve(ctx)
	}()
	return func() error { cancel(); return <-done }
}

func worker(id string) muster.Worker {
	return muster.Worker{ID: muster.WorkerID(id), Name: "same", State: muster.WorkerActive}
}

// TestEachWorkerHasItsBridge checks workers with the same name: one disconnects while its bridge still reports, and reconnects.
func TestEachWorkerHasItsBridge(t *testing.T) {
	f := &fakeFleet{workers: []muster.Worker{worker("w-1"), worker("w-2")}, report: make(chan struct{})}
	stop := f.serve(t)
	f.await(t, "start w-1")
	f.await(t, "start w-2")
	f.set(func(f *fakeFleet) { f.workers = f.workers[1:] })
	time.Sleep(50 * time.Millisecond)
	f.set(func(f *fakeFleet) { f.workers = append(f.workers, worker("w-1")) })
	time.Sleep(50 * time.Millisecond)
	f.mu.Lock()
	if n := len(f.events); n != 2 {
		t.Errorf("%q while the old bridge reports", f.events)
	}
	f.mu.Unlock()
	close(f.report)
	f.await(t, "end w-1", "start w-1")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestFailedBridgeDoesNotAffectOthers starts it again, and leaves the others alone; a server that fails for a moment does not matter either.
func TestFailedBridgeDoesNotAffectOthers(t *testing.T) {
	f := &fakeFleet{workers: []muster.Worker{worker("w-1"), worker("w-2")}, report: make(chan struct{}), fail: map[string]error{"w-1": errors.New("a disk is full")}}
	stop := f.serve(t)
	f.await(t, "start w-2")
	f.await(t, "start w-1", "end w-1", "start w-1")
	f.set(func(f *fakeFleet) { f.broken = true })
	time.Sleep(50 * time.Millisecond)
	f.set(func(f *fakeFleet) { f.broken, f.workers = false, append(f.workers, worker("w-3")) })
	f.await(t, "start w-3")
	if err := stop(); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.events); n != 5+3 { // five before, and each of the three ends
		t.Errorf("%q", f.events)
	}
}

// TestPermanentErrorEndsAllBridges ends all of them: the others have the same options and key.
func TestPermanentErrorEndsAllBridges(t *testing.T) {
	for _, code := range []muster.Code{muster.Invalid, muster.Forbidden, muster.Unauthenticated} {
		f := &fakeFleet{workers: []muster.Worker{worker("w-1"), worker("w-2")}, fail: map[string]error{"w-1": muster.Errorf(code, "no")}}
		stop := f.serve(t)
		f.await(t, "end w-1")
		f.await(t, "end w-2")
		if err := stop(); muster.CodeOf(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
}

// TestBridgeStopsWhenItsWorkerLeaves checks that the bridge reports its remaining jobs, and takes no others.
func TestBridgeStopsWhenItsWorkerLeaves(t *testing.T) {
	f := &fakeFleet{workers: []muster.Worker{worker("w-1")}, report: make(chan struct{})}
	close(f.report)
	dir := t.TempDir()
	for id, jobs := range map[string]int{"w-gone": 1, "w-done": 0} {
		b, err := core.New(core.Config{Dir: filepath.Join(dir, "each", id), Log: slog.New(slog.DiscardHandler)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range jobs {
			if _, err := b.Accept(t.Context(), core.Job{ID: "a"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop := f.serveDir(t, dir)
	f.await(t, "start w-gone", "end w-gone")
	if err := stop(); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.events, "start w-done") {
		t.Errorf("%q", f.events)
	}
}
