package gpu_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
)

// worker is the environment variable that makes this test program the worker
// that another test kills.
const worker = "MUSTER_TEST_STREAM"

func TestMain(m *testing.M) {
	if os.Getenv(worker) != "" {
		s := gpu.NewStream([]gpu.Device{{GPU: muster.GPU{UUID: "GPU-a", Vendor: "nvidia"}}}, 100*time.Millisecond, slog.New(slog.DiscardHandler))
		if err := s.Run(context.Background()); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// stream streams readings of the devices of a fake tool until the test ends.
func stream(t *testing.T) (*gpu.Stream, []gpu.Device) {
	t.Helper()
	devices, notes := gpu.Probe(t.Context())
	if len(devices) == 0 || len(notes) > 0 {
		t.Fatalf("found %+v, notes %q", devices, notes)
	}
	s := gpu.NewStream(devices, 100*time.Millisecond, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, devices
}

// await looks until the readings are as they should be.
func await(t *testing.T, s *gpu.Stream, what string, right func(gpu.Readings) bool) gpu.Readings {
	t.Helper()
	var last gpu.Readings
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if r, ok := s.Latest(); ok {
			if last = r; right(r) {
				return r
			}
		}
	}
	t.Fatalf("never %s: %+v", what, last)
	return last
}

// TestStreamOfOtherDevices checks that a running stream reads the devices of SetDevices.
func TestStreamOfOtherDevices(t *testing.T) {
	gputest.New(t, gputest.GPU{UUID: "GPU-a"}, gputest.GPU{UUID: "GPU-b"})
	s, devices := stream(t)
	s.SetDevices(nil)
	if r, ok := s.Latest(); ok || len(r.Devices) > 0 || len(s.Devices()) > 0 {
		t.Errorf("without devices the readings are %+v", r)
	}
	s.SetDevices(devices[1:])
	await(t, s, "read", func(r gpu.Readings) bool {
		return len(r.Devices) == 1 && r.Devices[0].UUID == "GPU-b" && r.Devices[0].Utilization != nil && r.Devices[0].Processes != nil
	})
}

func TestStream(t *testing.T) {
	tool := gputest.New(t,
		gputest.GPU{UUID: "GPU-a", Used: 1 << 30, Utilization: 0.25, Temperature: 50, Power: 120, Processes: []gputest.Process{{PID: 7, Name: "python", Memory: 900 << 20}}},
		gputest.GPU{UUID: "GPU-b"})
	if _, ok := gpu.NewStream(nil, time.Second, slog.New(slog.DiscardHandler)).Latest(); ok {
		t.Error("a stream that does not run has readings")
	}
	s, _ := stream(t)
	r := await(t, s, "read", func(r gpu.Readings) bool {
		return r.Devices[0].Utilization != nil && len(r.Devices[0].Processes) == 1 && r.Devices[1].Processes != nil
	})
	a := r.Devices[0]
	if a.UUID != "GPU-a" || *a.Utilization != 0.25 || *a.Memory != 1<<30 || *a.Temperature != 50 || *a.Power != 120 || *a.ECC != 0 ||
		a.Processes[0] != (gpu.Process{PID: 7, Name: "python", Memory: 900 << 20}) || len(r.Devices[1].Processes) != 0 {
		t.Errorf("got %+v", r)
	}
	if r.At.IsZero() || r.Latency < 0 {
		t.Errorf("read at %s, took %s", r.At, r.Latency)
	}
	s.PollFaults()
	if metrics, lists := s.LastSampled("GPU-a"); time.Since(metrics) > time.Minute || time.Since(lists) > time.Minute {
		t.Errorf("its figures are of %s, its list is of %s", metrics, lists)
	}
	if metrics, lists := s.LastSampled("GPU-none"); !metrics.IsZero() || !lists.IsZero() {
		t.Errorf("a missing device was found: %s, %s", metrics, lists)
	}
	tool.Set(gputest.GPU{UUID: "GPU-a", ECC: 3, Broken: "[GPU requires reset]"}, gputest.GPU{UUID: "GPU-b", Processes: []gputest.Process{{PID: 8, Name: "Xorg", Graphics: true}}})
	await(t, s, "seen to break", func(r gpu.Readings) bool {
		return slices.Equal(r.Devices[0].Faults, []string{"GPU requires reset"}) && r.Devices[0].Memory == nil &&
			r.Devices[0].Processes != nil && len(r.Devices[0].Processes) == 0 && len(r.Devices[1].Processes) == 1 && r.Devices[1].Processes[0].Graphics
	})
	tool.Set(gputest.GPU{UUID: "GPU-a"}, gputest.GPU{UUID: "GPU-b"})
	await(t, s, "healthy again", func(r gpu.Readings) bool { return len(r.Devices[0].Faults) == 0 && r.Devices[0].Memory != nil })
}

// TestStreamIsRestarted proves that a tool that dies, is taken away or hangs makes
// readings absent, not old, and is started again.
func TestStreamIsRestarted(t *testing.T) {
	tool := gputest.New(t, gputest.GPU{UUID: "GPU-a"})
	s, _ := stream(t)
	found := func(r gpu.Readings) bool { return r.Devices[0].Memory != nil && r.Devices[0].Processes != nil }
	stale := func() bool { _, ok := s.Latest(); return !ok }
	for _, tc := range []struct {
		name           string
		damage, repair func()
	}{
		{"dies", func() { tool.Fail(9, "no driver") }, func() { tool.Fail(0, "") }},
		{"is removed", func() { tool.Remove(); tool.Fail(1, "") }, func() { tool.Fail(0, ""); tool.Restore() }},
		{"hangs", func() { tool.Hang(true) }, func() { tool.Hang(false) }},
	} {
		await(t, s, "read before it "+tc.name, found)
		tc.damage()
		for deadline := time.Now().Add(time.Minute); !stale(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("readings stay when the tool %s", tc.name)
			}
		}
		tc.repair()
	}
	await(t, s, "read at the end", found)
}

// TestStreamOfParts proves that MIG instances have their own memory and
// processes.
func TestStreamOfParts(t *testing.T) {
	gputest.New(t, gputest.GPU{UUID: "GPU-a", Temperature: 44, Instances: []gputest.Instance{
		{UUID: "MIG-b", Used: 1 << 30, Processes: []gputest.Process{{PID: 7, Name: "one", Memory: 1 << 30}}},
		{UUID: "MIG-c", Used: 12 << 20, Profile: "2g.10gb", Memory: 9984 << 20},
	}})
	s, devices := stream(t)
	if len(devices) != 2 || devices[0].MIG != "1g.5gb" || devices[1].MIG != "2g.10gb" || devices[1].Parent != "GPU-a" || devices[1].Memory != 9984<<20 {
		t.Fatalf("devices %+v", devices)
	}
	r := await(t, s, "read", func(r gpu.Readings) bool { return r.Devices[0].Memory != nil })
	if *r.Devices[0].Memory != 1<<30 || len(r.Devices[0].Processes) != 1 || r.Devices[0].Processes[0].Name != "one" || *r.Devices[1].Memory != 12<<20 ||
		len(r.Devices[1].Processes) != 0 || *r.Devices[1].Temperature != 44 || r.Devices[1].Utilization != nil {
		t.Errorf("got %+v", r)
	}
}

// TestToolEndsWithWorker proves that kill -9 of the worker leaves no tool
// behind: not one that prints, into a pipe that is closed, and on Linux not
// one that hangs either.
func TestToolEndsWithWorker(t *testing.T) {
	for _, tc := range []struct{ name, script string }{
		// Its child does not know whose child it was: only the pipe can end it.
		{"prints", "{ while :; do echo 2024/05/10 12:00:00.000, GPU-a, 1, 2, 3, 4, 0; sleep 0.05 9>&-; done; } & wait"},
		{"hangs", "exec sleep 1000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "hangs" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends a child with its parent")
			}
			if runtime.GOOS == "windows" {
				t.Skip("the tool is a shell script")
			}
			dir := t.TempDir()
			alive := filepath.Join(dir, "alive")
			if err := fifo(alive); err != nil {
				t.Skip(err)
			}
			// The tool holds the pipe open while it runs, and prints its PID.
			script := "#!/bin/sh\nexec 9>" + alive + "\necho $$ >&9\n" + tc.script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), worker+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pipe, err := os.Open(alive)
			if err != nil {
				t.Fatal(err)
			}
			defer pipe.Close()
			lines := bufio.NewReader(pipe)
			for range 2 { // both streams of the worker
				if line, err := lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				} else if _, err := strconv.Atoi(strings.TrimSpace(line)); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			if _, err := io.Copy(io.Discard, lines); err != nil {
				t.Fatal(err) // ends when no tool is left
			}
		})
	}
}

// TestToolThatHangsIsKilled proves that a look ends with all that the tool
// started.
func TestToolThatHangsIsKilled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the tool is a shell script")
	}
	dir := t.TempDir()
	alive := filepath.Join(dir, "alive")
	if err := fifo(alive); err != nil {
		t.Skip(err)
	}
	script := "#!/bin/sh\nexec 9>" + alive + "\nsleep 1000000 &\nsleep 1000000\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ended := make(chan error, 1)
	go func() {
		pipe, err := os.Open(alive)
		if err == nil {
			_, err = io.Copy(io.Discard, pipe)
			err = errors.Join(err, pipe.Close())
		}
		ended <- err
	}()
	devices, notes := gpu.Probe(t.Context())
	if len(devices) > 0 || !strings.Contains(strings.Join(notes, "\n"), "nvidia-smi did not answer within 5s and was killed") {
		t.Errorf("devices %+v, notes %q", devices, notes)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestProbe(t *testing.T) {
	tool := gputest.New(t, gputest.GPU{UUID: "GPU-a"}, gputest.GPU{UUID: "GPU-b", Name: "NVIDIA L4", Memory: 23034 << 20})
	t.Setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
	devices, notes := gpu.Probe(t.Context())
	if len(devices) != 1 || devices[0].UUID != "GPU-b" || devices[0].Index != 1 || devices[0].Memory != 23034<<20 || devices[0].Driver == "" || len(notes) > 0 {
		t.Errorf("devices %+v, notes %q", devices, notes)
	}
	tool.Fail(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
	if devices, notes := gpu.Probe(t.Context()); len(devices) > 0 || len(notes) != 1 || !strings.Contains(notes[0], "couldn't communicate") {
		t.Errorf("devices %+v, notes %q", devices, notes)
	}
}

// BenchmarkStream measures the CPU that this process spends on a sample, with
// pipes, wake-ups and all, while a tool prints recorded lines of eight devices.
func BenchmarkStream(b *testing.B) {
	dir := b.TempDir()
	var devices []gpu.Device
	var figures, pids strings.Builder
	for i := 1; i <= 8; i++ {
		devices = append(devices, gpu.Device{GPU: muster.GPU{UUID: "GPU-" + strconv.Itoa(i), Vendor: "nvidia"}, Bus: "0000:0" + strconv.Itoa(i) + ":00.0"})
		figures.WriteString("2024/05/10 12:00:00.123, GPU-" + strconv.Itoa(i) + ", 97, 30521, 61, 287.13, 0\n")
		pids.WriteString("GPU 00000000:0" + strconv.Itoa(i) + ":00.0\n    Processes\n        GPU instance ID                   : N/A\n" +
			"        Process ID                        : 5762\n            Type                          : C\n            Name                          : python\n" +
			"            Used GPU Memory               : 1005 MiB\n")
	}
	script := "#!/bin/sh\nwhile :; do case $1 in -q) cat <<'END'\n" + pids.String() + "END\n;; *) cat <<'END'\n" + figures.String() + "END\nesac; sleep 0.1; done\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		b.Fatal(err)
	}
	b.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := gpu.NewStream(devices, 100*time.Millisecond, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for _, ok := s.Latest(); !ok; _, ok = s.Latest() {
		time.Sleep(10 * time.Millisecond)
	}
	before, began := cpu(b), time.Now()
	for b.Loop() {
		time.Sleep(100 * time.Millisecond)
	}
	b.ReportMetric(float64(cpu(b)-before)/1e6/(float64(time.Since(began))/1e8), "cpu-ms/sample")
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
