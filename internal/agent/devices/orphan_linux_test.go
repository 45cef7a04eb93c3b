package devices

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
)

// start starts a process that waits to be ended, with an environment.
func start(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append([]string{"A=b"}, env...) // not this process's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// A program that has just been executed has no environment yet.
	for deadline := time.Now().Add(time.Minute); len(environ(cmd.Process.Pid)) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it has no environment")
		}
	}
	return cmd
}

func gpuProcess(cmd *exec.Cmd) gpu.Process {
	return gpu.Process{PID: cmd.Process.Pid, Name: "sleep", Memory: gib}
}

// Processes that a task left on its device are ended, those of others are not.
func TestStrays(t *testing.T) {
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	b.timeouts.cleanup = time.Minute
	tagged, other, untagged := start(t, "MUSTER_OUT=/1"), start(t, "MUSTER_OUT=/2"), start(t)
	g := grantOf("GPU-a")
	g.GPUMemory = 10 * gib
	b.Acquire(t.Context(), attempt(1), g)
	b.Acquire(t.Context(), attempt(2), g)
	b.r.set("GPU-a", 3*gib, gpuProcess(tagged), gpuProcess(other), gpuProcess(untagged))
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), attempt(1), g, "MUSTER_OUT=/1") }()
	_ = tagged.Wait() // killed
	b.r.set("GPU-a", 2*gib, gpuProcess(other), gpuProcess(untagged))
	wantHealthy(t, b, <-released)
	if s := tagged.ProcessState.Sys(); s.(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the stray ended by itself: %v", tagged.ProcessState)
	}
	for name, cmd := range map[string]*exec.Cmd{"the other task's": other, "the owner's": untagged} {
		if hasExited(cmd.Process.Pid) {
			t.Errorf("%s process was ended", name)
		}
	}
}

// A process is the task's also where it has lost the mark, if nobody else has the
// device; what others descend from counts first.
func TestBelongs(t *testing.T) {
	const envTag = "MUSTER_OUT=/1"
	bare, tagged, other := start(t), start(t, envTag), start(t, "MUSTER_OUT=/12")
	child := func(env string) int {
		t.Helper()
		pids := filepath.Join(t.TempDir(), "pid")
		cmd := exec.Command("sh", "-c", `env -i sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`, pids)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), env}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := 0
		for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(time.Millisecond) {
			if text, err := os.ReadFile(pids); err == nil {
				if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
					t.Fatal(err)
				}
			} else if time.Now().After(deadline) {
				t.Fatal("no child is started")
			}
		}
		t.Cleanup(func() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH is the wanted state
			_ = cmd.Wait()
		})
		return pid
	}
	for name, tc := range map[string]struct {
		pid              int
		exclusive, among bool
	}{
		"marked":                    {tagged.Process.Pid, true, true},
		"of another task":           {other.Process.Pid, false, false},
		"below this worker":         {bare.Process.Pid, true, false},
		"child of a marked one":     {child(envTag), true, true},
		"child of another task's":   {child("MUSTER_OUT=/2"), false, false},
		"this worker itself":        {os.Getpid(), false, false},
		"the first of the machine":  {1, false, false},
		"one that is not there":     {1 << 30, false, false},
		"whoever started this test": {os.Getppid(), false, false},
	} {
		if got := belongsTo(tc.pid, envTag, "/data", true); got != tc.exclusive {
			t.Errorf("%s, nobody else has the device: %t", name, got)
		}
		if got := belongsTo(tc.pid, envTag, "/data", false); got != tc.among {
			t.Errorf("%s, others have the device: %t", name, got)
		}
	}
}

// A process in a container is known by a mark of its own: its other one all containers have.
func TestBelongsToAContainer(t *testing.T) {
	const envTag = "MUSTER_MARK=1f"
	tagged, other := start(t, "MUSTER_OUT=/muster/out", envTag), start(t, "MUSTER_OUT=/muster/out", "MUSTER_MARK=2f")
	for _, exclusive := range []bool{true, false} {
		if !belongsTo(tagged.Process.Pid, envTag, "/data", exclusive) || belongsTo(other.Process.Pid, envTag, "/data", exclusive) {
			t.Errorf("with the device alone %t: mine is the task's %t, that of another container %t", exclusive,
				belongsTo(tagged.Process.Pid, envTag, "/data", exclusive), belongsTo(other.Process.Pid, envTag, "/data", exclusive))
		}
	}
}

// What has ended holds no memory, though its driver still lists it; nor is a number
// killed that was given to another process.
func TestEnded(t *testing.T) {
	zombie := start(t)
	if hasExited(zombie.Process.Pid) {
		t.Fatal("it runs")
	}
	if err := kill(zombie.Process.Pid, func() bool { return false }); err != nil || hasExited(zombie.Process.Pid) {
		t.Errorf("it is not the one to be killed: %v", err)
	}
	if err := kill(zombie.Process.Pid, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !hasExited(zombie.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a zombie counts as alive")
		}
	}
	pid := zombie.Process.Pid
	_ = zombie.Wait() // killed
	if err := kill(pid, func() bool { return true }); err != nil || !hasExited(pid) {
		t.Errorf("it is gone: %v", err)
	}
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	exited := gpu.Process{PID: pid, Memory: 8 * gib}
	if err := b.use(t, 1, grantOf("GPU-a"), func() { b.r.set("GPU-a", 8*gib, exited) }); err != nil || b.withheldReason("GPU-a") == "" {
		t.Errorf("memory of a process that has ended is not missed: %v", err)
	}
}

// The board reads what tools print: a stray that holds a device is ended, and the device is
// free when the tool says so.
func TestWithATool(t *testing.T) {
	smi := gputest.New(t, gputest.GPU{UUID: "GPU-a"})
	found, notes := gpu.Probe(t.Context())
	if len(found) != 1 {
		t.Fatalf("found %v, %v", found, notes)
	}
	b := &testAllocator{r: newReadings()}
	stream := gpu.NewStream(found, 100*time.Millisecond, slog.New(slog.DiscardHandler))
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ran <- stream.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	alloc := New(Config{Data: t.TempDir(), Readings: stream, Log: slog.New(slog.DiscardHandler)}, found)
	b.Allocator = alloc
	alloc.timeouts.cleanup, alloc.timeouts.reading = time.Minute, time.Minute // the tool is a script, and slow where all is
	orphan := start(t, "MUSTER_OUT=/1")
	alloc.Acquire(t.Context(), attempt(1), grantOf("GPU-a"))
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 8 * gib, Processes: []gputest.Process{{PID: orphan.Process.Pid, Name: "python", Memory: 8 * gib}}})
	released := make(chan error, 1)
	go func() { released <- alloc.Release(t.Context(), attempt(1), grantOf("GPU-a"), "MUSTER_OUT=/1") }()
	_ = orphan.Wait() // killed
	smi.Set(gputest.GPU{UUID: "GPU-a"})
	wantHealthy(t, b, <-released)

	alloc.Acquire(t.Context(), attempt(2), grantOf("GPU-a"))
	smi.Set(gputest.GPU{UUID: "GPU-a", Broken: "[GPU requires reset]"})
	wantFault(t, alloc.Release(t.Context(), attempt(2), grantOf("GPU-a"), "MUSTER_OUT=/2"), "GPU requires reset")
}
