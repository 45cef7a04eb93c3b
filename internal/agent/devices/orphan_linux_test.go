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
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/testkit"
)

// start starts a process with an environment that waits to be killed.
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
	testkit.Await(t, "its environment", func() bool { return len(procfs.Environ(cmd.Process.Pid)) >= 2 })
	return cmd
}

func gpuProcess(cmd *exec.Cmd) gpu.Process {
	return gpu.Process{PID: cmd.Process.Pid, Name: "sleep", Memory: gib}
}

// Processes that a task left on its device are killed, other processes are not.
func TestOrphans(t *testing.T) {
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
		t.Errorf("the orphan exited by itself: %v", tagged.ProcessState)
	}
	for name, cmd := range map[string]*exec.Cmd{"the other task's": other, "the owner's": untagged} {
		if hasExited(cmd.Process.Pid) {
			t.Errorf("%s process was killed", name)
		}
	}
}

// A process without a tag belongs to the task if no other task has the device; the tag of an ancestor counts first.
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
		testkit.Await(t, "a child", func() bool {
			text, err := os.ReadFile(pids)
			if err != nil {
				return false
			}
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
			return err == nil
		})
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
		"tagged":                    {tagged.Process.Pid, true, true},
		"of another task":           {other.Process.Pid, false, false},
		"below this worker":         {bare.Process.Pid, true, false},
		"child of a tagged one":     {child(envTag), true, true},
		"child of another task's":   {child("MUSTER_OUT=/2"), false, false},
		"this worker itself":        {os.Getpid(), false, false},
		"the init process":          {1, false, false},
		"one that does not exist":   {1 << 30, false, false},
		"the parent of this worker": {os.Getppid(), false, false},
	} {
		if got := belongsTo(tc.pid, envTag, "/data", true); got != tc.exclusive {
			t.Errorf("%s, no other task has the device: %t", name, got)
		}
		if got := belongsTo(tc.pid, envTag, "/data", false); got != tc.among {
			t.Errorf("%s, other tasks have the device: %t", name, got)
		}
	}
}

// A process in a container has its own tag in addition to the entry that all containers have.
func TestBelongsToAContainer(t *testing.T) {
	const envTag = "MUSTER_MARK=1f"
	tagged, other := start(t, "MUSTER_OUT=/muster/out", envTag), start(t, "MUSTER_OUT=/muster/out", "MUSTER_MARK=2f")
	for _, exclusive := range []bool{true, false} {
		if !belongsTo(tagged.Process.Pid, envTag, "/data", exclusive) || belongsTo(other.Process.Pid, envTag, "/data", exclusive) {
			t.Errorf("exclusive %t: mine belongs to the task: %t, that of another container: %t", exclusive,
				belongsTo(tagged.Process.Pid, envTag, "/data", exclusive), belongsTo(other.Process.Pid, envTag, "/data", exclusive))
		}
	}
}

// A process that has exited uses no memory, although its driver still lists it; a process that reuses its PID is not killed.
func TestEnded(t *testing.T) {
	zombie := start(t)
	if hasExited(zombie.Process.Pid) {
		t.Fatal("it runs")
	}
	if err := kill(zombie.Process.Pid, func() bool { return false }); err != nil || hasExited(zombie.Process.Pid) {
		t.Errorf("another process was killed: %v", err)
	}
	if err := kill(zombie.Process.Pid, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the zombie to count as exited", func() bool { return hasExited(zombie.Process.Pid) })
	pid := zombie.Process.Pid
	_ = zombie.Wait() // killed
	if err := kill(pid, func() bool { return true }); err != nil || !hasExited(pid) {
		t.Errorf("it does not exist: %v", err)
	}
	b := newTestAllocator(t, device("GPU-a", "nvidia", 0))
	exited := gpu.Process{PID: pid, Memory: 8 * gib}
	if err := b.use(t, 1, grantOf("GPU-a"), func() { b.r.set("GPU-a", 8*gib, exited) }); err != nil || b.withheldReason("GPU-a") == "" {
		t.Errorf("leaked memory of an exited process is not detected: %v", err)
	}
}

// The allocator reads the output of a tool: it kills an orphan on a device, which is free when the tool reports that.
func TestAllocatorWithATool(t *testing.T) {
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
	alloc.timeouts.cleanup, alloc.timeouts.reading = time.Minute, time.Minute // the tool is a script, and slow on a busy machine
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
