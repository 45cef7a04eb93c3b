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

func on(cmd *exec.Cmd) gpu.Process {
	return gpu.Process{PID: cmd.Process.Pid, Name: "sleep", Memory: gib}
}

// Processes that a task left on its device are ended, those of others are not.
func TestStrays(t *testing.T) {
	b := newBench(t, device("GPU-a", "nvidia", 0))
	b.waits.settle = time.Minute
	mine, other, owners := start(t, "MUSTER_OUT=/1"), start(t, "MUSTER_OUT=/2"), start(t)
	g := whole("GPU-a")
	g.GPUMemory = 10 * gib
	b.Take(t.Context(), attempt(1), g)
	b.Take(t.Context(), attempt(2), g)
	b.r.set("GPU-a", 3*gib, on(mine), on(other), on(owners))
	given := make(chan error, 1)
	go func() { given <- b.Give(t.Context(), attempt(1), g, "MUSTER_OUT=/1") }()
	_ = mine.Wait() // killed
	b.r.set("GPU-a", 2*gib, on(other), on(owners))
	wantWell(t, b, <-given)
	if s := mine.ProcessState.Sys(); s.(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the stray ended by itself: %v", mine.ProcessState)
	}
	for name, cmd := range map[string]*exec.Cmd{"the other task's": other, "the owner's": owners} {
		if ended(cmd.Process.Pid) {
			t.Errorf("%s process was ended", name)
		}
	}
}

// A process is the task's also where it has lost the mark, if nobody else has the
// device; what others descend from counts first.
func TestBelongs(t *testing.T) {
	const mark = "MUSTER_OUT=/1"
	bare, mine, other := start(t), start(t, mark), start(t, "MUSTER_OUT=/12")
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
		pid          int
		alone, among bool
	}{
		"marked":                    {mine.Process.Pid, true, true},
		"of another task":           {other.Process.Pid, false, false},
		"below this worker":         {bare.Process.Pid, true, false},
		"child of a marked one":     {child(mark), true, true},
		"child of another task's":   {child("MUSTER_OUT=/2"), false, false},
		"this worker itself":        {os.Getpid(), false, false},
		"the first of the machine":  {1, false, false},
		"one that is not there":     {1 << 30, false, false},
		"whoever started this test": {os.Getppid(), false, false},
	} {
		if got := belongs(tc.pid, mark, "/data", true); got != tc.alone {
			t.Errorf("%s, nobody else has the device: %t", name, got)
		}
		if got := belongs(tc.pid, mark, "/data", false); got != tc.among {
			t.Errorf("%s, others have the device: %t", name, got)
		}
	}
}

// A process in a container is known by a mark of its own: its other one all containers have.
func TestBelongsToAContainer(t *testing.T) {
	const mark = "MUSTER_MARK=1f"
	mine, other := start(t, "MUSTER_OUT=/muster/out", mark), start(t, "MUSTER_OUT=/muster/out", "MUSTER_MARK=2f")
	for _, alone := range []bool{true, false} {
		if !belongs(mine.Process.Pid, mark, "/data", alone) || belongs(other.Process.Pid, mark, "/data", alone) {
			t.Errorf("with the device alone %t: mine is the task's %t, that of another container %t", alone,
				belongs(mine.Process.Pid, mark, "/data", alone), belongs(other.Process.Pid, mark, "/data", alone))
		}
	}
}

// What has ended holds no memory, though its driver still lists it; nor is a number
// killed that was given to another process.
func TestEnded(t *testing.T) {
	zombie := start(t)
	if ended(zombie.Process.Pid) {
		t.Fatal("it runs")
	}
	if err := kill(zombie.Process.Pid, func() bool { return false }); err != nil || ended(zombie.Process.Pid) {
		t.Errorf("it is not the one to be killed: %v", err)
	}
	if err := kill(zombie.Process.Pid, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !ended(zombie.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a zombie counts as alive")
		}
	}
	pid := zombie.Process.Pid
	_ = zombie.Wait() // killed
	if err := kill(pid, func() bool { return true }); err != nil || !ended(pid) {
		t.Errorf("it is gone: %v", err)
	}
	b := newBench(t, device("GPU-a", "nvidia", 0))
	gone := gpu.Process{PID: pid, Memory: 8 * gib}
	if err := b.used(t, 1, whole("GPU-a"), func() { b.r.set("GPU-a", 8*gib, gone) }); err != nil || b.told("GPU-a") == "" {
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
	b := &bench{r: newReadings()}
	stream := gpu.NewStream(found, 100*time.Millisecond, slog.New(slog.DiscardHandler))
	ran := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ran <- stream.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	board := New(Config{Data: t.TempDir(), Readings: stream, Log: slog.New(slog.DiscardHandler)}, found)
	b.Board = board
	board.waits.settle, board.waits.silence = time.Minute, time.Minute // the tool is a script, and slow where all is
	stray := start(t, "MUSTER_OUT=/1")
	board.Take(t.Context(), attempt(1), whole("GPU-a"))
	smi.Set(gputest.GPU{UUID: "GPU-a", Used: 8 * gib, Processes: []gputest.Process{{PID: stray.Process.Pid, Name: "python", Memory: 8 * gib}}})
	given := make(chan error, 1)
	go func() { given <- board.Give(t.Context(), attempt(1), whole("GPU-a"), "MUSTER_OUT=/1") }()
	_ = stray.Wait() // killed
	smi.Set(gputest.GPU{UUID: "GPU-a"})
	wantWell(t, b, <-given)

	board.Take(t.Context(), attempt(2), whole("GPU-a"))
	smi.Set(gputest.GPU{UUID: "GPU-a", Broken: "[GPU requires reset]"})
	wantFault(t, board.Give(t.Context(), attempt(2), whole("GPU-a"), "MUSTER_OUT=/2"), "GPU requires reset")
}
