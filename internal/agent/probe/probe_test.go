package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
	"github.com/muster-dev/muster/internal/agent/isolation"
)

func recorded(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// writeTool puts a program that is a shell script first on the PATH.
func writeTool(t *testing.T, name, script string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the fake tool is a shell script")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return path
}

// onlyPath is a Probe with nothing on its PATH.
func onlyPath(t *testing.T, c Config) *Probe {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	p := New(c)
	p.host.env = func(name string) string {
		if name == "PATH" {
			return os.Getenv("PATH")
		}
		return ""
	}
	return p
}

func TestDevices(t *testing.T) {
	p := onlyPath(t, Config{Data: t.TempDir()})
	t.Setenv("PATH", "/usr/bin:/bin") // the stand-in is a script
	smi := gputest.New(t, gputest.GPU{UUID: "GPU-a"}, gputest.GPU{UUID: "GPU-b", Name: "NVIDIA L4", Memory: 23034 << 20})
	f, err := p.Run(t.Context())
	if err != nil || len(f.Resources.GPUs) != 2 || f.Resources.GPUs[1].Name != "NVIDIA L4" || !slices.Contains(f.Tags, "cuda") {
		t.Fatalf("%v: offers %+v with the tags %q", err, f.Resources.GPUs, f.Tags)
	}
	smi.Fail(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
	f, err = p.Run(t.Context())
	if err != nil || len(f.GPUs) != 0 || slices.Contains(f.Tags, "gpu") || !strings.Contains(strings.Join(f.Notes, "\n"), "couldn't communicate") {
		t.Fatalf("%v: %+v with the tags %q and the notes %q", err, f.GPUs, f.Tags, f.Notes)
	}
}

func TestRunOnThisMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	f, err := New(Config{Data: dir, Bandwidth: 1 << 20, Isolation: &isolation.Config{}}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.System.OS != runtime.GOOS || f.CPU.Count <= 0 || f.Memory.Usable <= 0 || f.Memory.Usable > f.Memory.Total || f.Disk.Total <= 0 || f.Disk.Path != dir {
		t.Errorf("facts of this machine: %+v", f)
	}
	if f.Resources.Slots < 4 || f.Resources.Memory != f.Memory.Usable || f.Resources.Disk >= f.Disk.Free {
		t.Errorf("offers %+v", f.Resources)
	}
	if f.Network.Bandwidth != 1<<20 || f.Limits == nil || f.Limits.Memory.By == "" {
		t.Errorf("network %+v, limits %+v", f.Network, f.Limits)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back Facts
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, back); d != "" {
		t.Errorf("the JSON form is another: %s", d)
	}
}

// TestEmptyMachine checks that a machine without tools, home or engines has facts all
// the same, and nothing to complain about.
func TestEmptyMachine(t *testing.T) {
	p := onlyPath(t, Config{Data: t.TempDir()})
	p.host.home = ""
	f, err := p.Run(t.Context())
	if err != nil || len(f.Python)+len(f.Models) > 0 || f.UV != nil || f.CPU.Count <= 0 {
		t.Errorf("%v: %+v", err, f)
	}
	for _, tag := range []string{runtime.GOOS, runtime.GOARCH} {
		if !slices.Contains(f.Tags, tag) {
			t.Errorf("tags %q lack %s", f.Tags, tag)
		}
	}
}

// TestHangingTools checks that tools which never answer are killed with what they
// started, and that their facts are absent with a note.
func TestHangingTools(t *testing.T) {
	envTag := filepath.Join(t.TempDir(), "pids")
	hang := "echo $$ >>" + envTag + "; sleep 1000 & echo $! >>" + envTag + "; wait"
	for _, name := range []string{"podman", "nerdctl", "uv", "python3", "python3.7"} {
		writeTool(t, name, hang)
	}
	if runtime.GOOS != "linux" {
		t.Skip("leftover processes are read from /proc")
	}
	p := New(Config{Data: t.TempDir()})
	p.host.toolTimeout = time.Second
	f, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(f.Notes, "\n")
	for _, name := range []string{"podman", "nerdctl", "python3.7"} {
		if !strings.Contains(notes, name) {
			t.Errorf("no note about %s in %q", name, notes)
		}
	}
	if slices.Contains(f.Tags, "podman") || slices.Contains(f.Tags, "python") || f.UV == nil || f.UV.Version != "" {
		t.Errorf("tags %q, uv %+v", f.Tags, f.UV)
	}
	pids, err := os.ReadFile(envTag)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); alive(n); time.Sleep(time.Millisecond) { // to die takes a moment
			if time.Now().After(end) {
				t.Fatalf("process %d was not killed", n)
			}
		}
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestMissingResponse checks that a fact that hangs in the kernel delays neither others nor its own next probe.
func TestMissingResponse(t *testing.T) {
	p := onlyPath(t, Config{})
	p.busy.Store("disks", true) // an earlier look hangs
	f, err := p.Run(t.Context())
	if err != nil || f.Memory.Total == 0 {
		t.Fatalf("%v: %+v", err, f)
	}
	if !slices.Contains(f.Notes, "the disks: unknown, the query timed out") {
		t.Errorf("notes %q", f.Notes)
	}
}

func TestLoad(t *testing.T) {
	var l Load
	for range 2 {
		if s := l.Sample(t.Context()); s == nil || s.CPU < 0 || s.CPU > 1 || s.Memory <= 0 {
			t.Fatalf("load %+v", s)
		}
	}
}

func TestSlots(t *testing.T) {
	for cpus, want := range map[float64]int{0.5: 4, 2: 4, 3: 6, 64: 128} {
		if got := Slots(cpus); got != want {
			t.Errorf("%v cores: %d slots, want %d", cpus, got, want)
		}
	}
}

// TestKeys checks that the JSON format, which docs/workers.md documents, does not change.
func TestKeys(t *testing.T) {
	half, size, count := 0.5, muster.Size(1), uint64(1)
	f := Facts{
		Hostname: "h", System: System{Platform: "p", Kernel: "k", Virtual: "v"},
		CPU:     CPU{Model: "m", Sockets: 1, Cores: 1, Threads: 1, Features: []string{"avx2"}, Load: []float64{1}},
		Memory:  Memory{Usable: 1, Total: 1, Available: 1},
		Disk:    Disk{Path: "p", Device: "d", Type: "t", Kind: "ssd", ReadOnly: true, Total: 1, Free: 1},
		Disks:   []Disk{{Path: "p"}},
		Network: Network{Bandwidth: 1, Interfaces: []Interface{{Name: "n", Addresses: []string{"a"}, Speed: 1, MTU: 1, Virtual: true}}},
		GPUs: []gpu.Device{{
			GPU: muster.GPU{UUID: "u", MIG: "m", Parent: "p", Quarantined: "q"}, Driver: "d", Runtime: "r", PowerLimit: &half, Bus: "b", Instance: "i",
			Reading: gpu.Reading{
				GPULoad: muster.GPULoad{Utilization: &half, Memory: &size, Temperature: &half, Power: &half},
				ECC:     &count, Faults: []string{"f"}, Processes: []gpu.Process{{PID: 1, Name: "n", Graphics: true}},
			},
		}},
		Engines: []Engine{{Name: "n", Version: "v", Socket: "s", Tool: "t", Rootless: true, Remapped: true, Users: &Users{"engine", "w"}, Runtimes: []string{"r"}, GPUs: []string{"nvidia"}}},
		Python:  []Python{{Path: "p", Version: "v", Default: true, Source: "o", Packages: map[string]string{"torch": "1"}, Torch: "cpu"}},
		UV:      &UV{Path: "p", Version: "v"},
		Models:  []ModelCache{{Library: "o", Path: "p", Models: []string{"m"}, Partial: true}},
		Limits:  &Limits{Controllers: []string{"c"}, CPUs: isolation.Enforcement{By: "b", Why: "w"}, User: "u"},
		Tags:    []string{"t"}, Notes: []string{"n"}, Took: map[string]Seconds{"all": 1},
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	keys := slices.Sorted(slices.Values(paths("", v)))
	if d := cmp.Diff(recorded(t, "keys.golden"), strings.Join(keys, "\n")+"\n"); d != "" {
		t.Errorf("the JSON form changed: %s", d)
	}
}

// paths lists where values are, such as cpu.features[].
func paths(at string, v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			all = append(all, paths(strings.TrimPrefix(at+"."+key, "."), value)...)
		}
	case []any:
		for _, value := range v {
			all = append(all, paths(at+"[]", value)...)
		}
	default:
		all = append(all, at)
	}
	return all
}
