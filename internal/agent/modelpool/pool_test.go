//go:build unix

package modelpool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

var watch = run.Observer{Step: func(string) {}, LogLine: func(string) {}}

func newPool(t *testing.T, cfg Config) *Pool {
	t.Helper()
	if cfg.Data == "" {
		cfg.Data = t.TempDir()
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// serverSpec returns a model server of the test program, with the behaviour how.
func serverSpec(key, mode string, gpus ...string) *Request {
	return &Request{Key: key, Argv: []string{os.Args[0], serverArg}, Env: []string{"HOST=" + mode}, GPUs: gpus}
}

// acquire returns the process of a host that is used, and its release.
func acquire(t *testing.T, k *Pool, h *Request) (run.Pid, func()) {
	t.Helper()
	path, release, err := k.Acquire(t.Context(), h, watch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.servers[h.Key].Proc, release
}

// waitExit waits for the end of a process.
func waitExit(t *testing.T, p run.Pid) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); syscall.Kill(p.PID, 0) == nil && proctree.Alive(p); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", p.PID)
		}
	}
}

func isRunning(p run.Pid) bool { return syscall.Kill(p.PID, 0) == nil }

func TestTasksWithTheSameKeyShareAHost(t *testing.T) {
	k := newPool(t, Config{})
	var wg sync.WaitGroup
	pids := make([]int, 4)
	for i := range pids {
		wg.Go(func() {
			_, release, err := k.Acquire(t.Context(), serverSpec("a", ""), watch)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			k.mu.Lock()
			pids[i] = k.servers["a"].Proc.PID
			k.mu.Unlock()
		})
	}
	wg.Wait()
	if pids = slices.Compact(pids); len(pids) != 1 {
		t.Fatalf("tasks of one key were served by the processes %v", pids)
	}
	if other, _ := acquire(t, k, serverSpec("b", "")); other.PID == pids[0] {
		t.Fatal("another key has the same host")
	}
	if a, b := filepath.Base(k.servers["a"].socket()), filepath.Base(k.servers["b"].socket()); a == b || len(a) < 20 {
		t.Fatalf("the sockets have the names %s and %s, which can be guessed", a, b)
	}
}

func TestHostWithOtherSettingsIsReplaced(t *testing.T) {
	k := newPool(t, Config{})
	old, release := acquire(t, k, serverSpec("a", ""))
	release()
	if now, _ := acquire(t, k, serverSpec("a", "new")); now.PID == old.PID {
		t.Fatal("the host of the old settings is used")
	}
	waitExit(t, old)
}

func TestBrokenHostIsIgnored(t *testing.T) {
	k := newPool(t, Config{})
	_, _, err := k.Acquire(t.Context(), serverSpec("a", "broken"), watch)
	if err == nil || !strings.Contains(err.Error(), "it exited at once") || !strings.HasSuffix(err.Error(), "no module named torch") {
		t.Fatalf("the error is %v", err)
	}
	k.timeouts.answer = 50 * time.Millisecond
	_, _, err = k.Acquire(t.Context(), serverSpec("a", "silent"), watch)
	if _, ok := errors.AsType[*run.TaskError](err); !ok || !strings.Contains(err.Error(), "did not answer within 50ms") {
		t.Fatalf("the error is %v", err)
	}
	if orphans, err := os.ReadDir(poolDir(k.cfg.Data)); err != nil || len(orphans) != 0 {
		t.Fatalf("%v of them remain, %v", orphans, err)
	}
	k.timeouts.answer = time.Minute
	acquire(t, k, serverSpec("a", ""))
}

// TestHostLogIsNotALink checks that the worker shows no other file, and waits for nothing, where a host has put a
// link or a pipe in the place of its log.
func TestHostLogIsNotALink(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "identity.json")
	if err := os.WriteFile(secret, []byte("the worker's token"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &server{dir: t.TempDir()}
	log := filepath.Join(h.dir, logFile)
	for what, plant := range map[string]func() error{
		"a link out": func() error { return os.Symlink(secret, log) },
		"a pipe":     func() error { return syscall.Mkfifo(log, 0o600) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		lines := make(chan string, 1)
		go func() { lines <- h.lastLogLine() }()
		select {
		case line := <-lines:
			if line != "" {
				t.Errorf("with %s instead of its log, the last line is %q", what, line)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the worker waits for %s instead of a log", what)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(log, []byte("first\nlast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if line := h.lastLogLine(); line != ": last" {
		t.Errorf("the last line of its log is %q", line)
	}
}

func TestCancelledTaskStartsNoHost(t *testing.T) {
	k := newPool(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	step := func(string) { cancel() }
	if _, _, err := k.Acquire(ctx, serverSpec("a", "silent"), run.Observer{Step: step, LogLine: watch.LogLine}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	if len(k.servers) != 0 {
		t.Fatal("there is a host")
	}
}

func TestKilledHostIsRestarted(t *testing.T) {
	k := newPool(t, Config{})
	old, release := acquire(t, k, serverSpec("a", ""))
	defer release()
	if err := syscall.Kill(old.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitExit(t, old)
	now, again := acquire(t, k, serverSpec("a", ""))
	defer again()
	if now.PID == old.PID || !isRunning(now) {
		t.Fatal("the dead host is used")
	}
}

func TestUnusedHostIsStopped(t *testing.T) {
	k := newPool(t, Config{TTL: time.Millisecond})
	k.timeouts.poll = time.Millisecond
	used, _ := acquire(t, k, serverSpec("used", ""))
	unused, release := acquire(t, k, serverSpec("unused", "stubborn"))
	k.timeouts.shutdown = 10 * time.Millisecond // it is killed then
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = k.Run(ctx) })
	defer wg.Wait()
	defer end()
	release()
	waitExit(t, unused)
	if !isRunning(used) {
		t.Fatal("a host in use was ended")
	}
}

func TestLowMemoryStopsLeastRecentlyUsedHosts(t *testing.T) {
	hosts := 4
	k := newPool(t, Config{MinFree: 1 << 30})
	k.cfg.Free = func() (muster.Size, bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return muster.Size(hosts-len(k.servers)) << 30, true
	}
	var procs []run.Pid
	for i, key := range []string{"a", "b", "c"} {
		p, release := acquire(t, k, serverSpec(key, ""))
		procs = append(procs, p)
		if i != 1 {
			release()
		}
	}
	k.FreeMemory(t.Context(), 0) // 1 GiB is free
	if len(k.servers) != 3 {
		t.Fatal("a host was stopped although there is enough memory")
	}
	k.FreeMemory(t.Context(), 1<<30)
	if isRunning(procs[0]) || !isRunning(procs[1]) || !isRunning(procs[2]) {
		t.Fatal("it is not the host unused for longest that was ended")
	}
	k.FreeMemory(t.Context(), 100<<30)
	if isRunning(procs[2]) || !isRunning(procs[1]) {
		t.Fatal("a server in use was stopped, or an unused one was not")
	}
	tight := serverSpec("d", "")
	tight.Memory = 100 << 30
	if _, _, err := k.Acquire(t.Context(), tight, watch); err == nil || !strings.Contains(err.Error(), "too little free memory") {
		t.Fatalf("a server was started without enough memory: %v", err)
	}
}

// fakeDevices notes who has devices.
type fakeDevices struct {
	mu        sync.Mutex
	held      map[muster.AttemptID][]string
	released  []string // marks
	onRelease func()   // is called in Give
}

func (b *fakeDevices) Environ(g *muster.Grant) []string {
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(g.GPUs, ",")}
}

func (b *fakeDevices) Acquire(_ context.Context, a muster.AttemptID, g *muster.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[a] = g.GPUs
}

func (b *fakeDevices) Release(_ context.Context, a muster.AttemptID, _ *muster.Grant, envTag string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, a)
	b.released = append(b.released, envTag)
	if b.onRelease != nil {
		b.onRelease()
	}
	return nil
}

func TestHostsReleaseDevices(t *testing.T) {
	b := &fakeDevices{held: map[muster.AttemptID][]string{}}
	k := newPool(t, Config{GPUs: b})
	own, release := acquire(t, k, serverSpec("mine", "", "GPU-0"))
	release()
	other, release := acquire(t, k, serverSpec("other", "", "GPU-0", "GPU-1"))
	release()
	cpu, release := acquire(t, k, serverSpec("cpu", ""))
	release()
	busy, _ := acquire(t, k, serverSpec("busy", "", "GPU-1"))
	if len(b.held) != 4 {
		t.Fatalf("the allocator has %v", b.held)
	}
	b.onRelease = func() {
		if isRunning(other) {
			t.Error("the device was checked before its server had exited")
		}
	}
	if err := k.Evict(t.Context(), []string{"GPU-0", "GPU-1"}, "mine"); err != nil {
		t.Fatal(err)
	}
	b.onRelease = nil
	if !isRunning(own) || isRunning(other) || !isRunning(cpu) || !isRunning(busy) {
		t.Fatalf("of mine, other, cpu and busy live %v %v %v %v", isRunning(own), isRunning(other), isRunning(cpu), isRunning(busy))
	}
	if len(b.held) != 3 || len(b.released) != 1 || !strings.HasPrefix(b.released[0], "MUSTER_WARM_HOST="+k.cfg.Data) {
		t.Fatalf("the allocator was restored with %v and has %v", b.released, b.held)
	}
}

// A server that is being stopped keeps its resources until it has exited.
func TestTaskWaitsForStoppingHosts(t *testing.T) {
	for name, wait := range map[string]func(*Pool) error{
		"devices": func(k *Pool) error { return k.Evict(t.Context(), []string{"GPU-0"}, "mine") },
		"memory":  func(k *Pool) error { k.FreeMemory(t.Context(), 1<<30); return nil },
	} {
		k := newPool(t, Config{TTL: time.Nanosecond})
		host, release := acquire(t, k, serverSpec("a", "stubborn", "GPU-0"))
		k.cfg.Free = func() (muster.Size, bool) {
			if isRunning(host) {
				return 0, true
			}
			return 2 << 30, true
		}
		k.timeouts.shutdown = time.Minute // it is killed before, and not by the keeper
		release()
		k.evictExpired()
		if len(k.servers) != 0 || !isRunning(host) {
			t.Fatalf("%s: there are %d hosts, and it is not about to end", name, len(k.servers))
		}
		late := time.AfterFunc(100*time.Millisecond, func() { _ = syscall.Kill(host.PID, syscall.SIGKILL) })
		defer late.Stop()
		if err := wait(k); err != nil || isRunning(host) {
			t.Fatalf("%s: it was not waited for, %v", name, err)
		}
	}
}

func TestRestartedWorkerRecoversHosts(t *testing.T) {
	if proctree.BootID() == "" {
		t.Skip("this system cannot distinguish processes with the same ID")
	}
	data := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 12)) // longer than the path of a socket may be
	k := newPool(t, Config{Data: data})
	a, _ := acquire(t, k, serverSpec("a", ""))
	b, release := acquire(t, k, serverSpec("b", ""))
	release()
	if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitExit(t, b)
	if orphans := Orphans(data); len(orphans) != 2 || orphans[0].Attempt == orphans[1].Attempt {
		t.Fatalf("%d hosts are left", len(orphans))
	}

	next := newPool(t, Config{Data: data})
	if again, _ := acquire(t, next, serverSpec("a", "")); again != a {
		t.Fatalf("there is another host %+v, not %+v", again, a)
	}
	if now, _ := acquire(t, next, serverSpec("b", "")); !isRunning(now) {
		t.Fatal("a dead server is recovered")
	}
	next.Close()
	waitExit(t, a)
	if orphans := Orphans(data); len(orphans) != 0 {
		t.Fatalf("%d hosts are left by a worker that ended", len(orphans))
	}
	if _, _, err := next.Acquire(t.Context(), serverSpec("a", ""), watch); err == nil {
		t.Fatal("a worker that ended started a host")
	}
}

func TestRestartedWorkerWithoutCacheStopsHosts(t *testing.T) {
	if proctree.BootID() == "" {
		t.Skip("this system cannot distinguish processes with the same ID")
	}
	k := newPool(t, Config{})
	a, _ := acquire(t, k, serverSpec("a", "stubborn"))
	foreign := poolDir(k.cfg.Data) + "/77.json"
	if err := os.WriteFile(foreign, []byte("torn{"), 0o600); err != nil {
		t.Fatal(err)
	}
	StopOrphans(k.cfg)
	waitExit(t, a)
	if orphans, err := os.ReadDir(poolDir(k.cfg.Data)); err != nil || len(orphans) != 0 {
		t.Fatalf("%v remains, %v", orphans, err)
	}
}

// A worker may be killed at any time between the start of a host and the note of its process.
func TestHostOfKilledWorkerIsFound(t *testing.T) {
	if proctree.BootID() == "" {
		t.Skip("this system cannot distinguish processes with the same ID")
	}
	data := filepath.Join(t.TempDir(), "worker")
	proc := exec.Command(os.Args[0], workerArg, data)
	if err := proc.Run(); err == nil || proc.ProcessState.ExitCode() != -1 {
		t.Fatalf("the worker was not killed: %v", err)
	}
	h := &server{}
	h.setNumber(data, 1)
	if !proctree.Alive(h.Proc) {
		t.Fatal("no server")
	}
	k := newPool(t, Config{Data: data})
	k.Close()
	waitExit(t, h.Proc)

	note := filepath.Join(poolDir(data), "1"+recordSuffix)
	for name, lose := range map[string]func(*server) error{
		"recorded before it had a process": func(h *server) error {
			h.Proc = run.Pid{BootID: proctree.BootID(), EnvTag: h.envTag()}
			return h.saveRecord()
		},
		"with a torn note": func(*server) error { return os.WriteFile(note, []byte(`{"key":`), 0o600) },
		"without a note":   func(*server) error { return os.Remove(note) },
	} {
		for what, begin := range map[string]func(Config){
			"New": func(cfg Config) { newPool(t, cfg) },
			"End": StopOrphans,
		} {
			k, err := New(Config{Data: data, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			p, _ := acquire(t, k, serverSpec("a", ""))
			if err := lose(k.servers["a"]); err != nil {
				t.Fatal(err)
			}
			begin(k.cfg)
			waitExit(t, p)
			if orphans, err := os.ReadDir(poolDir(data)); err != nil || len(orphans) != 0 {
				t.Fatalf("%s, %s: %v is left, %v", name, what, orphans, err)
			}
		}
	}
}

func TestHostLogIsLimited(t *testing.T) {
	k := newPool(t, Config{})
	_, release := acquire(t, k, serverSpec("a", ""))
	path := filepath.Join(k.servers["a"].dir, logFile)
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	release()
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Fatalf("the log is %v, %v", info, err)
	}
}
