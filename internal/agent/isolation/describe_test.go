package isolation

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/agent/isolation/landlock"
)

// TestDescribe checks that Describe reports what New does.
func TestDescribe(t *testing.T) {
	for name, cfg := range map[string]Config{"auto": {}, "off": {Sandbox: Off}, "user": {TaskUser: "nobody"}} {
		d := Describe(cfg)
		for c, enforcement := range map[string]Enforcement{"cpu": d.CPUs, "memory": d.Memory, "pids": d.PIDs} {
			if kept := slices.Contains(d.Controllers, c); kept != (enforcement.By == ByKernel) {
				t.Errorf("%s: %s is kept by %s, with the controllers %s", name, c, enforcement.By, d.Controllers)
			}
		}
		for what, enforcement := range map[string]Enforcement{
			"cpus": d.CPUs, "memory": d.Memory, "pids": d.PIDs, "disk": d.Disk, "files": d.Files,
			"signals": d.Signals, "devices": d.Devices, "network: none": d.NoNetwork, "syscalls": d.Syscalls,
		} {
			if enforcement.By == "" || enforcement.By != ByKernel && enforcement.Why == "" {
				t.Errorf("%s: %s is kept by %q because of %q", name, what, enforcement.By, enforcement.Why)
			}
		}
		if files := d.Files.By == ByKernel; files != (landlock.ABI() > 0 && cfg.Sandbox != Off) {
			t.Errorf("%s: files are kept by %s, and Landlock has version %d", name, d.Files.By, d.Landlock)
		}
	}
}
