package gpu

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

func seed(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		f.Fatal(pattern, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
}

// sane returns what is wrong with devices that were parsed, or "".
func sane(found []Device) string {
	for _, d := range found {
		switch {
		case d.Memory < 0 || d.Memory > tool.MaxMemory:
			return "memory " + d.Memory.String()
		case d.Index < 0 || d.Vendor == "":
			return "no place or maker"
		case d.PowerLimit != nil && *d.PowerLimit < 0:
			return "a power limit below zero"
		case len(d.Bus) > 0 && tool.PCIAddress(d.Bus) != d.Bus:
			return "the address " + d.Bus
		}
		if bad := saneReading(&d.Reading); bad != "" {
			return bad
		}
	}
	return ""
}

func saneReading(r *Reading) string {
	switch {
	case r.Utilization != nil && (*r.Utilization < 0 || *r.Utilization > 1):
		return "a utilization that is not between 0 and 1"
	case r.Memory != nil && (*r.Memory < 0 || *r.Memory > tool.MaxMemory):
		return "memory in use that no device has"
	case r.Power != nil && *r.Power < 0:
		return "power below zero"
	}
	for _, p := range r.Processes {
		if p.PID <= 0 || p.Memory < 0 || p.Memory > tool.MaxMemory {
			return "a process without a number or with memory below zero"
		}
	}
	return ""
}

func FuzzNVIDIALog(f *testing.F) {
	seed(f, "*.xml")
	f.Fuzz(func(t *testing.T, out string) {
		devices, _ := parseLog(out)
		h := &host{root: "/nowhere"}
		var found []Device
		for i := range devices {
			d := &devices[i]
			complete := h.wholeDevice(i, d)
			found = append(found, complete)
			for _, p := range migInstances(i, d, nil) {
				if p.MIG == "" || p.UUID == "" {
					t.Errorf("a MIG instance without a name: %+v", p)
				}
				found = append(found, p)
			}
		}
		if bad := sane(found); bad != "" {
			t.Error(bad)
		}
	})
}

func FuzzMIGList(f *testing.F) {
	seed(f, "mig-list-*")
	f.Fuzz(func(t *testing.T, out string) {
		for _, p := range parseList(out) {
			if p.parent == "" || p.uuid == "" || p.profile == "" || p.index < 0 || strings.ContainsAny(p.uuid, " ()") {
				t.Errorf("%+v", p)
			}
		}
	})
}

func FuzzFigures(f *testing.F) {
	for _, line := range metricLines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		uuid, r, _ := parseMetrics(line, metricFields)
		if bad := saneReading(&r); bad != "" || strings.Contains(uuid, ",") {
			t.Error(uuid, bad)
		}
	})
}

func FuzzPIDs(f *testing.F) {
	f.Add(pidLog)
	f.Fuzz(func(t *testing.T, out string) {
		s := NewStream([]Device{{GPU: muster.GPU{UUID: "GPU-a", Vendor: "nvidia"}, Bus: "0000:01:00.0"}}, time.Second, slog.New(slog.DiscardHandler))
		r := &processReader{s: s}
		for line := range strings.Lines(out) {
			r.Line(time.Now(), line)
		}
		r.FlushIdle(time.Now())
		if bad := saneReading(&Reading{Processes: s.states[0].processes}); bad != "" || len(r.lists) > 0 {
			t.Error(bad)
		}
	})
}

func FuzzAMD(f *testing.F) {
	seed(f, "amd-smi-*")
	f.Fuzz(func(t *testing.T, out string) {
		found, err := parseAMD(out)
		if bad := sane(found); bad != "" || err != nil && found != nil {
			t.Error(bad, err)
		}
	})
}

func FuzzIntel(f *testing.F) {
	seed(f, "xpu-smi-*")
	f.Fuzz(func(t *testing.T, out string) {
		found, _ := parseDiscovery(out)
		seen := map[string]bool{}
		for _, d := range found {
			if seen[d.UUID] || d.UUID == "" {
				t.Errorf("%q is there twice, or has no UUID", d.UUID)
			}
			seen[d.UUID] = true
		}
		if bad := sane(found); bad != "" {
			t.Error(bad)
		}
	})
}

func FuzzApple(f *testing.F) {
	seed(f, "apple-*")
	f.Fuzz(func(t *testing.T, out string) {
		found, err := parseApple(out)
		if bad := sane(found); bad != "" || err != nil && found != nil {
			t.Error(bad, err)
		}
	})
}
