package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/workerd"
)

// newInspection checks a machine whose root is a folder, with these facts of the probe.
func newInspection(root string, f probe.Facts) *inspection {
	return &inspection{Config: &Config{root: root, Data: filepath.Join(root, "data")}, facts: func() probe.Facts { return f }, engineList: func() []engine { return nil }}
}

// nvrm is the content of /proc/driver/nvidia/version with a driver.
func nvrm(version string) string {
	return "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + version + "  Tue Jan  7 17:46:22 UTC 2025\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
}

func TestDriverAndLibraries(t *testing.T) {
	t.Parallel()
	const lib = "/usr/lib/x86_64-linux-gnu/"
	// As the drivers 525 to 570 print it, on standard output, with status 18.
	output := "NVIDIA GPUs are unknown: nvidia-smi failed (exit status 18): Failed to initialize NVML: Driver/library version mismatch"
	for _, c := range []struct {
		name    string
		loaded  string
		libs    []string
		notes   []string
		want    Status
		message string
	}{
		{"the same", "550.144.03", []string{"libcuda.so.550.144.03", "libnvidia-ml.so.550.144.03"}, nil, OK, "550.144.03"},
		{"upgraded below running programs", "550.144.03", []string{"libcuda.so.550.163.01", "libnvidia-ml.so.550.163.01"}, nil, Problem, "restart"},
		{"the tool says so", "550.144.03", []string{"libcuda.so.550.144.03"}, []string{output}, Problem, "version mismatch"},
		{"only the tool says so", "", nil, []string{output}, Problem, "an unknown version"},
		{"two versions", "550.144.03", []string{"libcuda.so.550.144.03", "libcuda.so.535.54.03"}, nil, Warning, "several"},
		{"no libraries", "570.86", nil, nil, Warning, "570.86"},
		{"open modules", "570.86.15", []string{"libcuda.so.570.86.15"}, nil, OK, "570.86.15"},
	} {
		root := t.TempDir()
		if c.loaded != "" {
			writeFile(t, root, "/proc/driver/nvidia/version", nvrm(c.loaded))
		}
		for _, l := range c.libs {
			writeFile(t, root, lib+l, "")
		}
		t.Log(c.name)
		wantFinding(t, newInspection(root, probe.Facts{Notes: c.notes}).driver(t.Context()), "driver", c.want, c.message)
	}
	if found := newInspection(t.TempDir(), probe.Facts{}).driver(t.Context()); found != nil {
		t.Errorf("without a GPU: %v", found)
	}
	root := t.TempDir()
	writeFile(t, root, "/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
	writeFile(t, root, "/sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n")
	wantFinding(t, newInspection(root, probe.Facts{}).driver(t.Context()), "driver", Warning, "no NVIDIA driver")
}

// TestMismatchReportedByTheTool checks that the output of a tool is reported, by the probe that
// workers use.
func TestMismatchReportedByTheTool(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the stand-in for nvidia-smi is a shell script")
	}
	dir := t.TempDir()
	tool := "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\necho 'NVML library version: 550.163'\nexit 18\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(tool), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	devices, notes := gpu.Probe(t.Context())
	r := newInspection(t.TempDir(), probe.Facts{GPUs: devices, Notes: notes})
	wantFinding(t, r.driver(t.Context()), "driver", Problem, "version mismatch", "rmmod")
	wantFinding(t, r.gpus(t.Context()), "gpus", Note)
}

func TestGPUs(t *testing.T) {
	gputest.New(t, gputest.GPU{Name: "NVIDIA H100 PCIe"}, gputest.GPU{Name: "NVIDIA A40", ECC: 3})
	devices, notes := gpu.Probe(t.Context())
	found := newInspection(t.TempDir(), probe.Facts{GPUs: devices, Notes: notes}).gpus(t.Context())
	wantFinding(t, found[:1], "gpus", OK, "H100")
	wantFinding(t, found[1:], "gpus", Warning, "A40", "3 uncorrectable memory errors")
	ecc := uint64(0)
	f := gpuFinding(&gpu.Device{GPU: muster.GPU{Name: "A100", UUID: "GPU-1"}, Reading: gpu.Reading{ECC: &ecc, Faults: []string{"XID 79: GPU has fallen off the bus"}}})
	wantFinding(t, []Finding{f}, "gpus", Problem, "XID 79", "GPU-1")
	wantFinding(t, newInspection(t.TempDir(), probe.Facts{Notes: []string{"no GPUs: none of nvidia-smi is on the PATH"}}).gpus(t.Context()), "gpus", Note, "has no GPUs")
	root := t.TempDir()
	writeFile(t, root, "/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x1002\n")
	writeFile(t, root, "/sys/bus/pci/devices/0000:3b:00.0/class", "0x038000\n")
	wantFinding(t, newInspection(root, probe.Facts{Notes: []string{"no GPUs: none of amd-smi is on the PATH"}}).gpus(t.Context()), "gpus", Warning, "AMD")
	wantFinding(t, newInspection(root, probe.Facts{Notes: []string{"NVIDIA GPU 0 (A40) is ignored: this user may not open its device files"}}).gpus(t.Context()), "gpus", Warning, "usermod")
}

func TestToolkit(t *testing.T) {
	t.Parallel()
	facts := probe.Facts{GPUs: []gpu.Device{{GPU: muster.GPU{Vendor: "nvidia"}}}}
	for _, c := range []struct {
		about   docker.Info
		cdi     string
		want    Status
		message string
	}{
		{docker.Info{Name: "docker", Runtimes: []string{"nvidia", "runc"}}, "", OK, "can give containers"},
		{docker.Info{Name: "docker", Runtimes: []string{"runc"}}, "", Warning, "nvidia-ctk runtime configure"},
		{docker.Info{Name: "podman", CDI: []string{"/etc/cdi"}}, "", Warning, "nvidia-ctk cdi generate"},
		{docker.Info{Name: "podman", CDI: []string{"/etc/cdi"}}, "/usr/lib/libcuda.so.550.144.03", OK, "can give containers"},
		{docker.Info{Name: "docker", CDI: []string{"/etc/cdi"}}, "/usr/lib/libcuda.so.535.54.03", Warning, "another driver"},
	} {
		root := t.TempDir()
		writeFile(t, root, "/proc/driver/nvidia/version", nvrm("550.144.03"))
		if c.cdi != "" {
			writeFile(t, root, "/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - hostPath: "+c.cdi+"\n")
		}
		r := newInspection(root, facts)
		r.engineList = func() []engine { return []engine{{host: "unix:///x", about: &c.about}} }
		wantFinding(t, r.toolkit(t.Context()), "gpu-toolkit", c.want, c.message)
	}
}

func TestMissingEngineSuggestsInstallation(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for release, command := range map[string]string{
		"ID=debian\n": "apt-get install docker.io", "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n": "apt-get install docker.io", "ID=fedora\n": "dnf install moby-engine",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n": "dnf install", "ID=arch\n": "pacman -S docker", "ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n": "zypper install docker",
		"ID=alpine\n": "apk add docker", "ID=nixos\n": "docs.docker.com", "": "docs.docker.com",
	} {
		root := t.TempDir()
		writeFile(t, root, "/etc/os-release", release)
		wantFinding(t, newInspection(root, probe.Facts{}).engines(t.Context()), "engine", Note, command)
	}
}

func TestUnusableEngine(t *testing.T) {
	t.Parallel()
	r := newInspection(t.TempDir(), probe.Facts{})
	refused := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", refused)
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	l.Close()
	e := r.askEngine(t.Context(), "unix://"+refused)
	wantFinding(t, []Finding{r.engineFinding(&e)}, "engine", Problem, "does not run", "service docker start")
	writeFile(t, r.root, "/run/systemd/system/x", "")
	wantFinding(t, []Finding{r.engineFinding(&e)}, "engine", Problem, "systemctl start docker")
	e = r.askEngine(t.Context(), "unix:///no/such.sock")
	wantFinding(t, []Finding{r.engineFinding(&e)}, "engine", Problem, "does not exist")
	e.err = fmt.Errorf("dial: %w", context.DeadlineExceeded)
	wantFinding(t, []Finding{r.engineFinding(&e)}, "engine", Problem, "systemctl restart docker")
	e.err = fmt.Errorf("dial: %w", syscall.EACCES)
	wantFinding(t, []Finding{r.engineFinding(&e)}, "engine", Problem, "usermod -aG docker")

	// A podman that answers makes it a note, and comes first: a worker uses it.
	podman := engine{host: "unix:///x", about: &docker.Info{Name: "podman", API: "1.41", CgroupDriver: "none"}}
	r.engineList = func() []engine { return []engine{e, podman} }
	found := r.engines(t.Context())
	wantFinding(t, found[:1], "engine", OK, "podman")
	wantFinding(t, found[1:2], "engine-limits", Warning)
	wantFinding(t, found[2:], "engine", Note, "usermod")
	r.engineList = func() []engine {
		return []engine{{host: "unix:///d", about: &docker.Info{Name: "docker", API: "1.41"}}, podman}
	}
	found = r.engines(t.Context())
	wantFinding(t, found[:1], "engine", OK, "docker")
	wantFinding(t, found[2:], "engine", Note, "podman", "--engine unix:///x")

	// One of another machine is no service here.
	for why, err := range map[string]error{"no server": fmt.Errorf("no server: %w", docker.ErrUnreachable), "does not answer within": context.DeadlineExceeded} {
		far := engine{host: "tcp://10.0.0.5:2375", err: err}
		f := r.engineFinding(&far)
		wantFinding(t, []Finding{f}, "engine", Problem, why, "listens there", "DOCKER_HOST")
		if strings.Contains(f.Fix, "service docker") || strings.Contains(f.Fix, "systemctl") {
			t.Errorf("a service of this machine is to be started: %s", f.Fix)
		}
		r.Engine = far.host
		wantFinding(t, []Finding{r.engineFinding(&far)}, "engine", Problem, "--engine unix:///var/run/docker.sock")
		r.Engine = ""
	}
	r.engineList = func() []engine {
		return []engine{{host: "tcp://x", about: &docker.Info{Name: "docker", API: "1.40", Storage: "vfs", CgroupDriver: "systemd", Rootless: true, OS: "windows"}}}
	}
	found = r.engines(t.Context())
	wantFinding(t, found, "engine-version", Warning, "1.40")
	wantFinding(t, found, "engine-storage", Warning, "overlay2")
	wantFinding(t, found, "engine-rootless", Note)
	wantFinding(t, found, "engine-os", Warning)
	wantNoFinding(t, found, "engine-limits")
	for _, c := range []struct {
		about  docker.Info
		name   string
		status Status
	}{
		{docker.Info{Name: "docker", OS: "linux"}, "engine-users", Note},
		{docker.Info{Name: "docker", OS: "linux", Remapped: true}, "engine-users", OK},
		{docker.Info{Name: "podman", OS: "linux", Rootless: true}, "engine-rootless", Note},
	} {
		found := r.engineNotes(t.Context(), &engine{host: "unix:///x", about: &c.about})
		wantFinding(t, found, c.name, c.status, "root in a container")
	}
	for v, old := range map[string]bool{"1.40": true, "1.41": false, "1.5": true, "1.51": false, "2.0": false, "": false} {
		found := r.engineNotes(t.Context(), &engine{host: "tcp://x", about: &docker.Info{API: v}})
		if slices.ContainsFunc(found, func(f Finding) bool { return f.Name == "engine-version" }) != old {
			t.Errorf("%q is older: %t", v, !old)
		}
	}
}

// TestDockerNotRunning checks that a stopped Docker is reported in addition to a Podman, whether that responds or not.
func TestDockerNotRunning(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	dir := t.TempDir()
	writeFile(t, dir, "/podman", "")
	if err := os.Chmod(filepath.Join(dir, "podman"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	r := newInspection(t.TempDir(), probe.Facts{})
	writeFile(t, r.root, "/usr/sbin/dockerd", "")
	found := r.engines(t.Context())
	wantFinding(t, found[:1], "engine", Note, "Docker is installed", "service docker start")
	if runtime.GOOS != "windows" { // where podman is no program without a suffix
		wantFinding(t, found[1:], "engine", Note, "podman.socket")
	}
	r.engineList = func() []engine { return []engine{{host: "unix:///x", about: &docker.Info{Name: "podman"}}} }
	found = r.engines(t.Context())
	wantFinding(t, found[:1], "engine", OK, "podman")
	wantFinding(t, found[2:], "engine", Note, "Docker is installed")
	r.Engine = "unix:///x"
	if found = r.engines(t.Context()); len(found) != 2 {
		t.Errorf("an engine is configured, but others are reported: %v", found)
	}
	r.Engine = ""
	writeFile(t, r.root, "/var/run/docker.sock", "")
	if found = r.engines(t.Context()); len(found) != 2 {
		t.Errorf("it was queried, but is reported again: %v", found)
	}
}

func TestLeftoverContainers(t *testing.T) {
	host := containertest.SharedEngine(t)
	d, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cfg := testConfig(t)
	cfg.Engine = host
	writeFile(t, cfg.Data, "identity.json", `{"worker":"w-doctor","key":"k","server":"http://`+unusedAddr+`"}`)
	writeFile(t, cfg.Data, "tasks/17.3-1/work/x", "x")
	image := containertest.LoadBusybox(t, host)
	begin := func(name, worker string) string {
		t.Helper()
		id, err := d.Create(t.Context(), &docker.ContainerSpec{Name: name, Image: image, Command: []string{"sleep", "60"}, Network: "none", LogSize: "1m", LogFiles: 1,
			Labels: map[string]string{container.LabelWorker: worker, container.LabelAttempt: "17.3#1", container.LabelData: cfg.Data}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Remove(context.WithoutCancel(t.Context()), id); err != nil {
				t.Error(err)
			}
		})
		return id
	}
	identity, _, err := agent.LoadIdentity(cfg.Data)
	if err != nil {
		t.Fatal(err)
	}
	label := workerd.ContainerLabel(identity, cfg.Data)
	own := container.NamePrefix(label) + "17.3-1"
	id := begin(own, label)
	begin(fmt.Sprintf("%s%d-other", container.NamePrefix("w-other"), os.Getpid()), "w-other")
	begin(fmt.Sprintf("theirs-%d-other", os.Getpid()), label) // of an image that was made from a task's container
	names := []string{"engine", "leftover-containers", "leftovers"}
	found := runChecks(t, cfg, names...)
	wantFinding(t, found, "engine", OK, host)
	wantFinding(t, found, "leftover-containers", Warning, own)
	wantFinding(t, found, "other-containers", Note)
	wantFinding(t, found, "task-folders", Warning)

	if err := d.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	found = runChecks(t, cfg, names...)
	wantFinding(t, found, "leftover-containers", Warning, own, "rm -f")
	if err := d.Kill(t.Context(), id, "KILL"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	wantFinding(t, runChecks(t, cfg, names...), "leftover-containers", Warning, own, "removes them")
}

func TestSystem(t *testing.T) {
	t.Parallel()
	if !isLinux {
		t.Skip("skipped: the files are Linux's")
	}
	root := t.TempDir()
	none := isolation.Description{Cgroups: "v2", CPUs: isolation.Enforcement{By: isolation.ByNothing, Why: "not delegated"}, Memory: isolation.Enforcement{By: isolation.ByWatch, Why: "not delegated"}, PIDs: isolation.Enforcement{By: isolation.ByKernel},
		Signals: isolation.Enforcement{By: isolation.ByNothing}, NoNetwork: isolation.Enforcement{By: isolation.ByNothing, Why: "no user namespace"}}
	r := newInspection(root, probe.Facts{Limits: &none})
	wantFinding(t, r.cgroups(t.Context()), "cgroups", Warning, "cpus (no)", "memory (watched)", "not delegated")
	writeFile(t, root, "/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
	writeFile(t, root, "/sys/kernel/security/lsm", "capability,yama,apparmor\n")
	wantFinding(t, r.sandbox(t.Context()), "sandbox", Warning, "lsm=landlock,capability,yama,apparmor")
	writeFile(t, root, "/proc/sys/kernel/osrelease", "5.10.0-28-amd64\n")
	wantFinding(t, r.sandbox(t.Context()), "sandbox", Warning, "5.13")
	for _, c := range []struct {
		way    isolation.Enforcement
		status Status
	}{
		{isolation.Enforcement{By: isolation.ByKernel}, OK},
		{isolation.Enforcement{By: isolation.ByKernel, Why: "tasks can create user namespaces"}, Note},
		{isolation.Enforcement{By: isolation.ByNothing, Why: "seccomp: invalid argument"}, Warning},
	} {
		r := newInspection(root, probe.Facts{Limits: &isolation.Description{Syscalls: c.way}})
		wantFinding(t, r.systemCalls(t.Context()), "system-calls", c.status, c.way.Why)
		r.Limits.Sandbox = isolation.Off
		if f := r.systemCalls(t.Context()); f != nil {
			t.Errorf("with --sandbox off it says %+v", f)
		}
	}
	for file, command := range map[string]string{
		"/proc/sys/kernel/unprivileged_userns_clone": "unprivileged_userns_clone=1", "/proc/sys/user/max_user_namespaces": "max_user_namespaces=", "/none": "--task-user",
	} {
		r := newInspection(t.TempDir(), probe.Facts{Limits: &none})
		writeFile(t, r.root, file, "0\n")
		wantFinding(t, r.network(t.Context()), "network", Warning, command)
	}
	writeFile(t, root, "/proc/sys/kernel/pid_max", "4194304\n")
	writeFile(t, root, "/proc/sys/kernel/threads-max", "7000\n")
	wantFinding(t, r.processes(t.Context()), "processes", Note, "7000", "kernel.threads-max")
	writeFile(t, root, "/proc/sys/net/ipv4/ip_local_port_range", "15000\t61000\n")
	wantFinding(t, r.gangPorts(t.Context()), "gang-ports", Note, "ip_local_reserved_ports")
	writeFile(t, root, "/proc/sys/net/ipv4/ip_local_reserved_ports", "20000-29999\n")
	wantFinding(t, r.gangPorts(t.Context()), "gang-ports", OK)
	r.Limits = isolation.Config{TaskUser: "no-such-user-here"}
	wantFinding(t, r.taskUser(t.Context()), "task-user", Problem, "useradd")
}

func TestFileSystems(t *testing.T) {
	t.Parallel()
	for kind, status := range map[string]Status{"ext4": OK, "xfs": OK, "nfs4": Warning, "tmpfs": Warning, "9p": Warning, "overlay": Note, "": Note} {
		wantFinding(t, newInspection(t.TempDir(), probe.Facts{Disk: probe.Disk{Type: kind}}).filesystem(t.Context()), "filesystem", status)
	}
	wantFinding(t, newInspection(t.TempDir(), probe.Facts{Disk: probe.Disk{Type: "ext4", ReadOnly: true}}).filesystem(t.Context()), "filesystem", Problem, "read-only")
}

func TestPythonAndUV(t *testing.T) {
	t.Parallel()
	r := newInspection(t.TempDir(), probe.Facts{UV: &probe.UV{Path: "/usr/bin/uv", Version: "0.5.11"}})
	wantFinding(t, r.uv(t.Context()), "uv", OK, "0.5.11")
	r = newInspection(t.TempDir(), probe.Facts{UV: &probe.UV{Path: "/usr/bin/uv"}})
	wantFinding(t, r.uv(t.Context()), "uv", Problem, "/usr/bin/uv")
	own := filepath.Join(r.Data, "tools", "uv", "bin", "uv")
	r = &inspection{Config: r.Config, facts: func() probe.Facts { return probe.Facts{UV: &probe.UV{Path: own}} }}
	wantFinding(t, r.uv(t.Context()), "uv", Problem, own, "downloads another one")
	if found := r.index(t.Context()); found != nil {
		t.Errorf("the package index was queried: %v", found)
	}
}
