package probe

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
)

func TestDevices(t *testing.T) {
	tool := gputest.New(t, gputest.GPU{UUID: "GPU-a"}, gputest.GPU{UUID: "GPU-b", Name: "NVIDIA L4", Memory: 23034 << 20})
	f, err := Run(t.Context(), t.TempDir())
	if err != nil || len(f.Resources.GPUs) != 2 || f.Resources.GPUs[1].Name != "NVIDIA L4" || !slices.Contains(f.Tags, "cuda") {
		t.Fatalf("%v: offers %+v with the tags %q", err, f.Resources.GPUs, f.Tags)
	}
	tool.Fail(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
	f, err = Run(t.Context(), t.TempDir())
	if err != nil || len(f.GPUs) != 0 || slices.Contains(f.Tags, "gpu") || !strings.Contains(strings.Join(f.Notes, "\n"), "couldn't communicate") {
		t.Fatalf("%v: %+v with the tags %q and the notes %q", err, f.GPUs, f.Tags, f.Notes)
	}
}

func TestCgroup(t *testing.T) {
	if g := ownGroup("12:cpu:/x\n0::/user.slice/session-1.scope\n"); g != "/user.slice/session-1.scope" {
		t.Errorf("own group %q", g)
	}
	if g := ownGroup("4:memory:/docker/ab\n"); g != "/" {
		t.Errorf("own group %q without version 2", g)
	}
	if c, ok := leastCPUs([]string{"max 100000", "150000 100000", "400000 100000"}); !ok || c != 1.5 {
		t.Errorf("cores %v, %v", c, ok)
	}
	if _, ok := leastCPUs([]string{"max 100000", "", "nonsense"}); ok {
		t.Error("cores limited by nothing")
	}
	if m, ok := leastMemory([]string{"max", "1073741824", "2147483648"}); !ok || m != 1<<30 {
		t.Errorf("memory %v, %v", m, ok)
	}
	if _, ok := leastMemory([]string{"max"}); ok {
		t.Error("memory limited by nothing")
	}
}

func TestRunHere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	f, err := Run(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.System.OS != runtime.GOOS || f.CPU.Count <= 0 || f.Memory <= 0 || f.Disk.Total <= 0 || f.Disk.Path != dir {
		t.Errorf("facts of this machine: %+v", f)
	}
	if f.Resources.Slots < 4 || f.Resources.Memory != f.Memory || f.Resources.Disk >= f.Disk.Free {
		t.Errorf("offers %+v", f.Resources)
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
