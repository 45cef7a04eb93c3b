package limit

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/agent/limit/landlock"
)

// TestDescribe holds that what is told is what New does.
func TestDescribe(t *testing.T) {
	for name, cfg := range map[string]Config{"auto": {}, "off": {Sandbox: Off}, "user": {TaskUser: "nobody"}} {
		d := Describe(cfg)
		for c, way := range map[string]Way{"cpu": d.CPUs, "memory": d.Memory, "pids": d.PIDs} {
			if kept := slices.Contains(d.Controllers, c); kept != (way.By == ByKernel) {
				t.Errorf("%s: %s is kept by %s, with the controllers %s", name, c, way.By, d.Controllers)
			}
		}
		for what, way := range map[string]Way{
			"cpus": d.CPUs, "memory": d.Memory, "pids": d.PIDs, "disk": d.Disk, "files": d.Files,
			"signals": d.Signals, "devices": d.Devices, "network: none": d.NoNetwork,
		} {
			if way.By == "" || way.By != ByKernel && way.Why == "" {
				t.Errorf("%s: %s is kept by %q because of %q", name, what, way.By, way.Why)
			}
		}
		if files := d.Files.By == ByKernel; files != (landlock.ABI() > 0 && cfg.Sandbox != Off) {
			t.Errorf("%s: files are kept by %s, and Landlock has version %d", name, d.Files.By, d.Landlock)
		}
	}
}
