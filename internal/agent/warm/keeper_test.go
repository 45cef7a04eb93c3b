//go:build unix

package warm

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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

var watch = run.Watch{Step: func(string) {}, Say: func(string) {}}

func keeper(t *testing.T, cfg Config) *Keeper {
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

// want is a host of the test program, which does what how says.
func want(key, how string, gpus ...string) *run.Host {
	return &run.Host{Key: key, Argv: []string{os.Args[0], hostWord}, Env: []string{"HOST=" + how}, GPUs: gpus}
}

// get returns the process of a host that is used, and its release.
func get(t *testing.T, k *Keeper, h *run.Host) (run.Pid, func()) {
	t.Helper()
	path, release, err := k.Socket(t.Context(), h, watch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hosts[h.Key].Proc, release
}

// gone waits for the end of a process.
func gone(t *testing.T, p run.Pid) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); syscall.Kill(p.PID, 0) == nil && kin.Lives(p); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives on", p.PID)
		}
	}
}

func lives(p run.Pid) bool { return syscall.Kill(p.PID, 0) == nil }

func TestTasksOfOneKeyHaveOneHost(t *testing.T) {
	k := keeper(t, Config{})
	var wg sync.WaitGroup
	pids := make([]int, 4)
	for i := range pids {
		wg.Go(func() {
			_, release, err := k.Socket(t.Context(), want("a", ""), watch)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			k.mu.Lock()
			pids[i] = k.hosts["a"].Proc.PID
			k.mu.Unlock()
		})
	}
	wg.Wait()
	if pids = slices.Compact(pids); len(pids) != 1 {
		t.Fatalf("tasks of one key were served by the processes %v", pids)
	}
	if other, _ := get(t, k, want("b", "")); other.PID == pids[0] {
		t.Fatal("another key has the same host")
	}
	if a, b := filepath.Base(k.hosts["a"].socket()), filepath.Base(k.hosts["b"].socket()); a == b || len(a) < 20 {
		t.Fatalf("the sockets have the names %s and %s, which can be guessed", a, b)
	}
}

func TestAHostOfOtherSettingsIsReplaced(t *testing.T) {
	k := keeper(t, Config{})
	old, release := get(t, k, want("a", ""))
	release()
	if now, _ := get(t, k, want("a", "new")); now.PID == old.PID {
		t.Fatal("the host of the old settings is used")
	}
	gone(t, old)
}

func TestAHostThatDoesNotWorkIsNoHost(t *testing.T) {
	k := keeper(t, Config{})
	_, _, err := k.Socket(t.Context(), want("a", "broken"), watch)
	if !errors.Is(err, errOver) || !strings.HasSuffix(err.Error(), "no module named torch") {
		t.Fatalf("the error is %v", err)
	}
	k.waits.answer = 50 * time.Millisecond
	_, _, err = k.Socket(t.Context(), want("a", "silent"), watch)
	if _, ok := errors.AsType[*run.TaskError](err); !ok || !strings.Contains(err.Error(), "does not answer within 50ms") {
		t.Fatalf("the error is %v", err)
	}
	if left, err := os.ReadDir(folder(k.cfg.Data)); err != nil || len(left) != 0 {
		t.Fatalf("%v is left of them, %v", left, err)
	}
	k.waits.answer = time.Minute
	get(t, k, want("a", ""))
}

// TestTheLogOfAHostLeadsNowhere holds that the worker shows no other file, and waits for nothing, where a host has put a
// link or a pipe in the place of its log.
func TestTheLogOfAHostLeadsNowhere(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "identity.json")
	if err := os.WriteFile(secret, []byte("the worker's token"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &host{dir: t.TempDir()}
	log := filepath.Join(h.dir, logFile)
	for what, plant := range map[string]func() error{
		"a link out": func() error { return os.Symlink(secret, log) },
		"a pipe":     func() error { return syscall.Mkfifo(log, 0o600) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 1)
		go func() { said <- h.lastWords() }()
		select {
		case words := <-said:
			if words != "" {
				t.Errorf("of %s in the place of its log the worker tells %q", what, words)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the worker waits for %s in the place of a log", what)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(log, []byte("first\nlast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if words := h.lastWords(); words != ": last" {
		t.Errorf("of its log the worker tells %q", words)
	}
}

func TestATaskThatIsCancelledStartsNoHost(t *testing.T) {
	k := keeper(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	step := func(string) { cancel() }
	if _, _, err := k.Socket(ctx, want("a", "silent"), run.Watch{Step: step, Say: watch.Say}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	if len(k.hosts) != 0 {
		t.Fatal("there is a host")
	}
}

func TestAHostThatWasKilledIsStartedAnew(t *testing.T) {
	k := keeper(t, Config{})
	old, release := get(t, k, want("a", ""))
	defer release()
	if err := syscall.Kill(old.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, old)
	now, again := get(t, k, want("a", ""))
	defer again()
	if now.PID == old.PID || !lives(now) {
		t.Fatal("the dead host is used")
	}
}

func TestAHostEndsWhenNobodyUsesIt(t *testing.T) {
	k := keeper(t, Config{TTL: time.Millisecond})
	k.waits.tick = time.Millisecond
	used, _ := get(t, k, want("used", ""))
	unused, release := get(t, k, want("unused", "stubborn"))
	k.waits.leave = 10 * time.Millisecond // it is killed then
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = k.Run(ctx) })
	defer wg.Wait()
	defer end()
	release()
	gone(t, unused)
	if !lives(used) {
		t.Fatal("a host in use was ended")
	}
}

func TestShortOfMemoryTheHostsUnusedForLongestEnd(t *testing.T) {
	hosts := 4
	k := keeper(t, Config{Spare: 1 << 30})
	k.cfg.Free = func() (muster.Size, bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return muster.Size(hosts-len(k.hosts)) << 30, true
	}
	var procs []run.Pid
	for i, key := range []string{"a", "b", "c"} {
		p, release := get(t, k, want(key, ""))
		procs = append(procs, p)
		if i != 1 {
			release()
		}
	}
	k.Room(t.Context(), 0) // 1 GiB is free
	if len(k.hosts) != 3 {
		t.Fatal("a host was ended though there is memory")
	}
	k.Room(t.Context(), 1<<30)
	if lives(procs[0]) || !lives(procs[1]) || !lives(procs[2]) {
		t.Fatal("it is not the host unused for longest that was ended")
	}
	k.Room(t.Context(), 100<<30)
	if lives(procs[2]) || !lives(procs[1]) {
		t.Fatal("a host in use was ended, or one that nobody uses was not")
	}
	tight := want("d", "")
	tight.Memory = 100 << 30
	if _, _, err := k.Socket(t.Context(), tight, watch); err == nil || !strings.Contains(err.Error(), "too little memory") {
		t.Fatalf("a host was started for which there is no memory: %v", err)
	}
}

// board notes who has devices.
type board struct {
	mu    sync.Mutex
	has   map[muster.AttemptID][]string
	given []string // marks
	dead  func()   // is called in Give
}

func (b *board) Environ(g *muster.Grant) []string {
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(g.GPUs, ",")}
}

func (b *board) Take(_ context.Context, a muster.AttemptID, g *muster.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.has[a] = g.GPUs
}

func (b *board) Give(_ context.Context, a muster.AttemptID, _ *muster.Grant, mark string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.has, a)
	b.given = append(b.given, mark)
	if b.dead != nil {
		b.dead()
	}
	return nil
}

func TestHostsLeaveDevicesToOthers(t *testing.T) {
	b := &board{has: map[muster.AttemptID][]string{}}
	k := keeper(t, Config{GPUs: b})
	mine, release := get(t, k, want("mine", "", "GPU-0"))
	release()
	other, release := get(t, k, want("other", "", "GPU-0", "GPU-1"))
	release()
	cpu, release := get(t, k, want("cpu", ""))
	release()
	busy, _ := get(t, k, want("busy", "", "GPU-1"))
	if len(b.has) != 4 {
		t.Fatalf("the board knows of %v", b.has)
	}
	b.dead = func() {
		if lives(other) {
			t.Error("the device was looked at before its host had ended")
		}
	}
	if err := k.Evict(t.Context(), []string{"GPU-0", "GPU-1"}, "mine"); err != nil {
		t.Fatal(err)
	}
	b.dead = nil
	if !lives(mine) || lives(other) || !lives(cpu) || !lives(busy) {
		t.Fatalf("of mine, other, cpu and busy live %v %v %v %v", lives(mine), lives(other), lives(cpu), lives(busy))
	}
	if len(b.has) != 3 || len(b.given) != 1 || !strings.HasPrefix(b.given[0], "MUSTER_WARM_HOST="+k.cfg.Data) {
		t.Fatalf("the board was given %v and knows of %v", b.given, b.has)
	}
}

// A host that is on its way out, for whatever reason, has what it had until it is gone.
func TestWhoNeedsRoomWaitsForHostsThatAreEnding(t *testing.T) {
	for name, wait := range map[string]func(*Keeper) error{
		"devices": func(k *Keeper) error { return k.Evict(t.Context(), []string{"GPU-0"}, "mine") },
		"memory":  func(k *Keeper) error { k.Room(t.Context(), 1<<30); return nil },
	} {
		k := keeper(t, Config{TTL: time.Nanosecond})
		host, release := get(t, k, want("a", "stubborn", "GPU-0"))
		k.cfg.Free = func() (muster.Size, bool) {
			if lives(host) {
				return 0, true
			}
			return 2 << 30, true
		}
		k.waits.leave = time.Minute // it is killed before, and not by the keeper
		release()
		k.look()
		if len(k.hosts) != 0 || !lives(host) {
			t.Fatalf("%s: there are %d hosts, and it is not about to end", name, len(k.hosts))
		}
		late := time.AfterFunc(100*time.Millisecond, func() { _ = syscall.Kill(host.PID, syscall.SIGKILL) })
		defer late.Stop()
		if err := wait(k); err != nil || lives(host) {
			t.Fatalf("%s: it was not waited for, %v", name, err)
		}
	}
}

func TestTheNextLifeGoesOnWithHosts(t *testing.T) {
	if kin.BootID() == "" {
		t.Skip("processes cannot be told from later ones of their number here")
	}
	data := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 12)) // longer than the path of a socket may be
	k := keeper(t, Config{Data: data})
	a, _ := get(t, k, want("a", ""))
	b, release := get(t, k, want("b", ""))
	release()
	if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, b)
	if left := Left(data); len(left) != 2 || left[0].Attempt == left[1].Attempt {
		t.Fatalf("%d hosts are left", len(left))
	}

	next := keeper(t, Config{Data: data})
	if again, _ := get(t, next, want("a", "")); again != a {
		t.Fatalf("there is another host %+v, not %+v", again, a)
	}
	if now, _ := get(t, next, want("b", "")); !lives(now) {
		t.Fatal("the dead host is gone on with")
	}
	next.Close()
	gone(t, a)
	if left := Left(data); len(left) != 0 {
		t.Fatalf("%d hosts are left by a worker that ended", len(left))
	}
	if _, _, err := next.Socket(t.Context(), want("a", ""), watch); err == nil {
		t.Fatal("a worker that ended started a host")
	}
}

func TestAWorkerThatKeepsNoneEndsThoseOfEarlierLives(t *testing.T) {
	if kin.BootID() == "" {
		t.Skip("processes cannot be told from later ones of their number here")
	}
	k := keeper(t, Config{})
	a, _ := get(t, k, want("a", "stubborn"))
	foreign := folder(k.cfg.Data) + "/77.json"
	if err := os.WriteFile(foreign, []byte("torn{"), 0o600); err != nil {
		t.Fatal(err)
	}
	End(k.cfg)
	gone(t, a)
	if left, err := os.ReadDir(folder(k.cfg.Data)); err != nil || len(left) != 0 {
		t.Fatalf("%v is left, %v", left, err)
	}
}

// A worker may be killed at any time between the start of a host and the note of its process.
func TestNoHostIsForgotten(t *testing.T) {
	if kin.BootID() == "" {
		t.Skip("processes cannot be told from later ones of their number here")
	}
	data := filepath.Join(t.TempDir(), "worker")
	life := exec.Command(os.Args[0], workerWord, data)
	if err := life.Run(); err == nil || life.ProcessState.ExitCode() != -1 {
		t.Fatalf("the worker was not killed: %v", err)
	}
	h := &host{}
	h.number(data, 1)
	if !kin.Lives(h.Proc) {
		t.Fatal("there is no host")
	}
	k := keeper(t, Config{Data: data})
	k.Close()
	gone(t, h.Proc)

	note := filepath.Join(folder(data), "1"+noteSuffix)
	for name, lose := range map[string]func(*host) error{
		"noted before it had a process": func(h *host) error { h.Proc = run.Pid{BootID: kin.BootID(), Mark: h.mark()}; return h.save() },
		"with a torn note":              func(*host) error { return os.WriteFile(note, []byte(`{"key":`), 0o600) },
		"without a note":                func(*host) error { return os.Remove(note) },
	} {
		for what, begin := range map[string]func(Config){
			"New": func(cfg Config) { keeper(t, cfg) },
			"End": End,
		} {
			k, err := New(Config{Data: data, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			p, _ := get(t, k, want("a", ""))
			if err := lose(k.hosts["a"]); err != nil {
				t.Fatal(err)
			}
			begin(k.cfg)
			gone(t, p)
			if left, err := os.ReadDir(folder(data)); err != nil || len(left) != 0 {
				t.Fatalf("%s, %s: %v is left, %v", name, what, left, err)
			}
		}
	}
}

func TestALogDoesNotFillTheDisk(t *testing.T) {
	k := keeper(t, Config{})
	_, release := get(t, k, want("a", ""))
	path := filepath.Join(k.hosts["a"].dir, logFile)
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	release()
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Fatalf("the log is %v, %v", info, err)
	}
}
