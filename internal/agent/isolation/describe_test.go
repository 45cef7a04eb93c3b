package isolation

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"

	"slices"
	"strings"
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
		if shared := d.User != DynamicUser; d.Files.By == ByKernel && strings.Contains(d.Files.Why, "named sockets") != shared {
			t.Errorf("%s: tasks run as %q, and what is said of their sockets is %q", name, d.User, d.Files.Why)
		}
	}
}

// TestTasksHaveADiskLimit checks the limit of a task's disk: its own, the owner's, or half of the free space.
func TestTasksHaveADiskLimit(t *testing.T) {
	t.Parallel()
	own, owners := &run.Task{Grant: muster.Grant{Disk: 5}}, &run.Task{}
	for _, c := range []struct {
		task  *run.Task
		owner *muster.Size
		want  muster.Size
	}{{own, nil, 5}, {own, new(muster.Size(7)), 5}, {owners, new(muster.Size(7)), 7}, {owners, new(muster.Size(0)), 0}} {
		l := &Isolator{cfg: Config{Disk: c.owner, Data: t.TempDir()}}
		if got := l.diskLimit(c.task); got != c.want {
			t.Errorf("with %v: %d, want %d", c.owner, got, c.want)
		}
	}
	l := &Isolator{cfg: Config{Data: t.TempDir()}}
	if got := l.diskLimit(owners); got < minTaskDisk {
		t.Errorf("a task without a disk may write %d", got)
	}
}
