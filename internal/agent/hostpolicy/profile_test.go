package hostpolicy

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestParseProfile(t *testing.T) {
	for _, p := range Profiles() {
		if got, err := ParseProfile(p.Name); err != nil || got != p.Name {
			t.Errorf("%s: %q, %v", p.Name, got, err)
		}
	}
	for s, want := range map[string]string{
		"bench": `unknown profile "bench": did you mean benchmark?`,
		"lihgt": `did you mean light?`,
		"turbo": `use one of benchmark, test, light`,
	} {
		if _, err := ParseProfile(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", s, err, want)
		}
	}
}

func TestShape(t *testing.T) {
	const gib = 1 << 30
	machine := muster.Resources{CPUs: 16, Memory: 64 * gib, Slots: 32}
	for _, test := range []struct {
		name string
		o    Options
		want muster.Resources
	}{
		{"nothing said", Options{}, machine},
		{"a buffer", Options{MemoryBuffer: new(0.25)}, muster.Resources{CPUs: 16, Memory: 48 * gib, Slots: 32}},
		{"benchmark without its buffer", Options{Profile: "benchmark", MemoryBuffer: new(0.0)}, muster.Resources{CPUs: 16, Memory: 64 * gib, Slots: 1}},
		{"test", Options{Profile: "test", MemoryBuffer: new(0.5)}, muster.Resources{CPUs: 16, Memory: 32 * gib, Slots: 16}},
		{"light", Options{Profile: "light", MemoryBuffer: new(0.5)}, muster.Resources{CPUs: 8, Memory: 32 * gib, Slots: 64}},
	} {
		got := machine
		test.o.Apply(&got)
		if got.CPUs != test.want.CPUs || got.Memory != test.want.Memory || got.Slots != test.want.Slots {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestGatesOfOptions(t *testing.T) {
	for _, test := range []struct {
		name             string
		o                Options
		cpu, memory, gpu string // bounds; "" for no gate
		coolDown         time.Duration
	}{
		{name: "nothing said"},
		{name: "all", o: Options{MaxCPU: new(80.0), MaxMemory: new(75.0), MaxGPU: new(90.5), CoolDown: new(muster.Duration(time.Minute))},
			cpu: "--max-cpu-percent 80", memory: "--max-memory-percent 75", gpu: "--max-gpu-percent 90.5", coolDown: time.Minute},
		{name: "the stricter of two for memory", o: Options{MaxMemory: new(75.0), MemoryBuffer: new(0.3)},
			memory: "the 70% that --memory-buffer 0.3 leaves", coolDown: DefaultCoolDown},
		{name: "the other one", o: Options{MaxMemory: new(60.0), MemoryBuffer: new(0.3)}, memory: "--max-memory-percent 60", coolDown: DefaultCoolDown},
		{name: "a profile", o: Options{Profile: "light"}, cpu: "--max-cpu-percent 70 of the profile light", memory: "--max-memory-percent 70 of the profile light",
			gpu: "--max-gpu-percent 70 of the profile light", coolDown: 10 * time.Second},
		{name: "flags over a profile", o: Options{Profile: "light", MaxCPU: new(100.0), MaxGPU: new(50.0), MaxMemory: new(100.0), MemoryBuffer: new(0.0), CoolDown: new(muster.Duration(0))},
			gpu: "--max-gpu-percent 50"},
	} {
		g := test.o.thresholds(0)
		for name, got := range map[string]*threshold{test.cpu: g.cpu, test.memory: g.memory, test.gpu: g.gpu} {
			switch {
			case got == nil && name != "":
				t.Errorf("%s: no gate for %s", test.name, name)
			case got != nil && (got.bound != name || got.coolDown != test.coolDown):
				t.Errorf("%s: %q with a cool-down of %s, want %q and %s", test.name, got.bound, got.coolDown, name, test.coolDown)
			}
		}
	}
}

// The table in docs/workers.md has the values of the profiles.
func TestProfilesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Profiles() {
		row := regexp.MustCompile("(?m)^\\| `" + p.Name + "` \\|.*$").Find(page)
		cells := strings.Split(string(row), "|")
		if len(cells) < 9 {
			t.Errorf("no row for the profile %s with 7 cells: %q", p.Name, row)
			continue
		}
		percent := func(f float64) string {
			if f >= 100 {
				return "none"
			}
			return formatNumber(f)
		}
		for i, want := range []string{percent(p.MaxCPU), percent(p.MaxMemory), percent(p.MaxGPU), formatNumber(p.MemoryBuffer), p.CoolDown.String()} {
			if got := strings.TrimSpace(cells[i+4]); got != want {
				t.Errorf("profile %s: cell %d is %q, want %q", p.Name, i+4, got, want)
			}
		}
	}
}
