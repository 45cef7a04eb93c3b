package probe

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParseSMI(t *testing.T) {
	a100 := func(i int, uuid string) muster.GPU {
		return muster.GPU{UUID: uuid, Index: i, Vendor: "nvidia", Name: "NVIDIA A100-SXM4-40GB", Memory: 40 << 30}
	}
	for _, tc := range []struct {
		file   string
		want   []muster.GPU
		driver string
		bad    string
	}{
		{"a100x2.csv", []muster.GPU{
			a100(0, "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"), a100(1, "GPU-6d2b0d7e-0c1b-4b3a-8a55-1f8b2a1de901"),
		}, "550.54.15", ""},
		{"gb10.csv", []muster.GPU{{UUID: "GPU-0f3f1b2c-9a52-7e35-6d0e-2f6d3f1c7a11", Vendor: "nvidia", Name: "NVIDIA GB10"}}, "580.82.09", ""},
		{"old.csv", []muster.GPU{
			{UUID: "GPU-1b1c3a7e-1f0e-9d62-5a1f-7c2f2d1e4a55", Vendor: "nvidia", Name: "GeForce MX150", Memory: 2002 << 20},
		}, "390.157", "without index or UUID"},
		{"none.txt", nil, "", ""},
		{"no_driver.txt", nil, "", "cannot be read"},
	} {
		t.Run(tc.file, func(t *testing.T) {
			gpus, driver, err := parseSMI(recorded(t, tc.file))
			if d := cmp.Diff(tc.want, gpus); d != "" || driver != tc.driver {
				t.Errorf("driver %q, devices %s", driver, d)
			}
			if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
				t.Errorf("got %v, want an error about %q", err, tc.bad)
			}
		})
	}
}

// fakeSMI puts a program called nvidia-smi first on the PATH.
func fakeSMI(t *testing.T, script string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the fake tool is a shell script")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestTool(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, script string
		gpus         int
		note         string
	}{
		{"two devices", "cat " + data + "/a100x2.csv", 2, ""},
		{"no devices", "cat " + data + "/none.txt; exit 6", 0, ""},
		{"no driver", "cat " + data + "/no_driver.txt; exit 9", 0, "couldn't communicate with the NVIDIA driver"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fakeSMI(t, tc.script)
			f, err := Run(t.Context(), t.TempDir())
			if err != nil || len(f.GPUs) != tc.gpus {
				t.Fatalf("%d devices, %v", len(f.GPUs), err)
			}
			if notes := strings.Join(f.Notes, "\n"); !strings.Contains(notes, tc.note) || (tc.note == "") != (notes == "") {
				t.Errorf("notes are %q, want one about %q", notes, tc.note)
			}
			if slices.Contains(f.Tags, "gpu") != (tc.gpus > 0) {
				t.Errorf("tags are %q", f.Tags)
			}
		})
	}
}

func TestToolThatHangsIsKilled(t *testing.T) {
	fakeSMI(t, "sleep 1000")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // stands in for smiTimeout
	defer cancel()
	_, _, err := nvidia(ctx)
	if err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Fatalf("got %v", err)
	}
}

func TestVisibleOnly(t *testing.T) {
	gpus := []muster.GPU{{UUID: "GPU-aa11", Index: 0}, {UUID: "GPU-bb22", Index: 1}, {UUID: "GPU-cc33", Index: 2}}
	for visible, want := range map[string][]int{
		"":               nil,
		"-1":             nil,
		"NoDevFiles":     nil,
		"0":              {0},
		"2,0":            {2, 0},
		" 1 , GPU-aa":    {1, 0},
		"0,7,1":          {0},
		"GPU-bb22":       {1},
		"0,0,1":          {0},
		"0,1,2":          {0, 1, 2},
		"GPU-aa,GPU-aa1": {0},
	} {
		var got []int
		for _, g := range visibleOnly(gpus, visible) {
			got = append(got, g.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q shows %v, want %v", visible, got, want)
		}
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

// FuzzSMI proves that every device that is read has an identity and a sane size.
func FuzzSMI(f *testing.F) {
	for _, name := range []string{"a100x2.csv", "gb10.csv", "old.csv", "none.txt", "no_driver.txt"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, out string) {
		gpus, _, _ := parseSMI(out)
		for _, g := range gpus {
			if g.UUID == "" || g.Index < 0 || g.Memory < 0 || strings.Contains(g.UUID, ",") {
				t.Errorf("device %+v", g)
			}
		}
	})
}
