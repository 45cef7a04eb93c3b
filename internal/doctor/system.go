package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	psnet "github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/procfs"
)

// minFiles is how many open files a worker and its tasks need at least.
const minFiles = 4096

// minPIDs is how many processes a machine should allow.
const minPIDs = 32768

// cgroups reports which limits of tasks the kernel enforces.
func (r *inspection) cgroups(context.Context) []Finding {
	l := r.facts().Limits
	if l == nil {
		return single("cgroups", Note, "", "the limits of tasks are unknown")
	}
	var enforced, watched []string
	reasonSet := map[string]bool{}
	for _, w := range []struct {
		name string
		way  isolation.Enforcement
	}{{"cpus", l.CPUs}, {"memory", l.Memory}, {"pids", l.PIDs}} {
		if w.way.By == isolation.ByKernel {
			enforced = append(enforced, w.name)
			continue
		}
		watched = append(watched, w.name+" ("+w.way.By+")")
		reasonSet[w.way.Why] = true
	}
	if len(watched) == 0 {
		return single("cgroups", OK, "", "control groups (%s): the kernel enforces %s of tasks", l.Cgroups, strings.Join(enforced, ", "))
	}
	if runtime.GOOS != "linux" {
		return single("cgroups", Note, "", "this system has no control groups: memory and processes of tasks are watched, cpus are not limited")
	}
	reasons := slices.Sorted(maps.Keys(reasonSet))
	fix := "run the worker as a service (`muster worker install --user`), or in `systemd-run --user --scope -p Delegate=yes muster worker`"
	switch _, err := os.Stat(r.hostPath("/run/systemd/system")); {
	case os.Geteuid() == 0:
		fix = "mount the controllers: `sudo mount -t cgroup2 none /sys/fs/cgroup`; in a container, use a writable control group of its own (--cgroupns=private, and rw)"
	case err != nil:
		fix = "give this user a writable control group, or run the worker as root with --task-user"
	}
	return single("cgroups", Warning, fix, "control groups (%s): the kernel does not enforce %s: %s", l.Cgroups, strings.Join(watched, ", "), strings.Join(reasons, "; "))
}

// sandbox reports how tasks are isolated from other files and processes.
func (r *inspection) sandbox(context.Context) []Finding {
	l := r.facts().Limits
	switch {
	case l == nil || runtime.GOOS != "linux":
		return single("sandbox", Note, "run untrusted code in containers", "this system has no Landlock: tasks see what their user sees")
	case r.Limits.Sandbox == isolation.Off:
		return single("sandbox", Warning, "use --sandbox auto", "--sandbox is off: tasks see what their user sees")
	case l.Landlock == 0:
		return r.noLandlock()
	case l.Signals.By != isolation.ByKernel:
		return single("sandbox", Note, "use Linux 6.12 or newer", "Landlock has version %d: tasks can access only their own files, but can signal other processes of their user", l.Landlock)
	}
	return single("sandbox", OK, "", "Landlock (version %d) limits tasks to their own files", l.Landlock)
}

// systemCalls reports whether tasks may use the system calls that container engines deny.
func (r *inspection) systemCalls(context.Context) []Finding {
	l := r.facts().Limits
	switch {
	case l == nil || runtime.GOOS != "linux" || r.Limits.Sandbox == isolation.Off:
		return nil // the check of the sandbox says it
	case l.Syscalls.By != isolation.ByKernel:
		return single("system-calls", Warning, "use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or ARM64; in a container, let the worker call seccomp", "tasks may use all system calls: %s", l.Syscalls.Why)
	case l.Syscalls.Why != "":
		return single("system-calls", Note, "run the worker as root: each task still has a user of its own", "%s", l.Syscalls.Why)
	}
	return single("system-calls", OK, "", "tasks cannot use the system calls that container engines deny")
}

func (r *inspection) noLandlock() []Finding {
	release := r.readText("/proc/sys/kernel/osrelease")
	if procfs.KernelOlder(release, 5, 13) {
		return single("sandbox", Warning, "use Linux 5.13 or newer, or run untrusted code in containers", "the kernel %s has no Landlock: tasks see what their user sees", release)
	}
	list := r.readText("/sys/kernel/security/lsm")
	if list == "" {
		list = "capability,yama,apparmor"
	}
	return single("sandbox", Warning, "add `lsm=landlock,"+list+"` to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then `sudo update-grub`), and restart the machine",
		"Landlock is disabled in this kernel: tasks see what their user sees")
}

func (r *inspection) taskUser(context.Context) []Finding {
	name := r.Limits.TaskUser
	if runtime.GOOS == "windows" {
		return nil
	}
	if err := r.Limits.Check(); name != "" && err != nil {
		return single("task-user", Problem, "`sudo useradd --system --no-create-home "+name+"`, or use another one", "%s", err)
	}
	switch d := isolation.Describe(r.Limits); {
	case d.User == isolation.DynamicUser:
		return single("task-user", OK, "", "each task runs as a user of its own")
	case d.User == isolation.RootUser:
		return single("task-user", Warning, "`muster worker` without --task-user, or `sudo useradd --system --no-create-home muster-task` and `muster worker --task-user muster-task`",
			"tasks run as root: they can use root's sockets, such as that of a container engine")
	case name == "":
		return single("task-user", OK, "", "tasks run as this user, who is not root")
	}
	return single("task-user", OK, "", "tasks run as %s", name)
}

// network reports whether tasks can be cut off from the network.
func (r *inspection) network(context.Context) []Finding {
	l := r.facts().Limits
	if l == nil || runtime.GOOS != "linux" {
		return single("network", Note, "", "tasks with network: none or allowlist cannot run as processes here")
	}
	if l.NoNetwork.By == isolation.ByKernel {
		return single("network", OK, "", "tasks can run without a network")
	}
	var fix string
	switch {
	case r.readText("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		fix = "allow user namespaces: `sudo sysctl -w kernel.unprivileged_userns_clone=1`"
	case r.readText("/proc/sys/user/max_user_namespaces") == "0":
		fix = "allow user namespaces: `sudo sysctl -w user.max_user_namespaces=15000`"
	case r.readText("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		fix = "allow user namespaces of programs without a profile: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or run the worker as root with --task-user"
	default:
		fix = "run the worker as root with --task-user"
	}
	return single("network", Warning, fix, "tasks with network: none or allowlist cannot run as processes here: %s", l.NoNetwork.Why)
}

func (r *inspection) processes(context.Context) []Finding {
	lowest, sysctl := 0, ""
	for _, file := range []string{"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"} {
		if n, err := strconv.Atoi(r.readText(file)); err == nil && (sysctl == "" || n < lowest) {
			lowest, sysctl = n, "kernel."+file[strings.LastIndexByte(file, '/')+1:]
		}
	}
	switch {
	case sysctl == "":
		return nil
	case lowest < minPIDs:
		return single("processes", Note, "`sudo sysctl -w "+sysctl+"=131072`", "this machine allows %d processes and threads (%s): tasks with many threads may reach the limit", lowest, sysctl)
	}
	return single("processes", OK, "", "this machine allows %d processes and threads", lowest)
}

func (r *inspection) openFiles(context.Context) []Finding {
	switch n := maxFiles(); {
	case n == 0:
		return nil
	case n < minFiles:
		return single("open-files", Warning, "`ulimit -Hn 65536` as root before the worker, LimitNOFILE=65536 in its service, or a line in /etc/security/limits.conf", "a process may open %d files: too few for a worker with many tasks", n)
	default:
		return single("open-files", OK, "", "a process may open %d files", n)
	}
}

func (r *inspection) clockSync(context.Context) []Finding {
	off, known := clockUnsynced()
	switch {
	case !known:
		return nil
	case off:
		return single("clock-sync", Note, "`sudo timedatectl set-ntp true`, or install chrony", "the clock is not synchronised by NTP on this machine; a hypervisor may do it")
	}
	return single("clock-sync", OK, "", "the clock is synchronised by NTP")
}

// listen checks whether a server could listen here.
func (r *inspection) listen(ctx context.Context) []Finding {
	_, port, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return single("listen", Problem, "use --listen with one such as 127.0.0.1:8700, or :8700 for all addresses", "%q is not an address to listen on", r.Listen)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", r.Listen)
	if err == nil {
		_ = l.Close()
		return single("listen", OK, "", "a server could listen on %s", r.Listen)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return single("listen", Problem, "set --listen to an address of this machine, with a port above 1023 if the server does not run as root", "a server cannot listen on %s: %s", r.Listen, rootCause(err))
	}
	if r.isServer(ctx, port) {
		return single("listen", OK, "", "a Muster server listens on %s", r.Listen)
	}
	listener := ""
	if n, err := strconv.Atoi(port); err == nil {
		listener = portListener(ctx, uint32(n))
	}
	status := Note // a server may not be wanted here
	if r.ListenSet {
		status = Problem
	}
	return single("listen", status, "stop it (`sudo ss -ltnp 'sport = :"+port+"'` shows it), or use another address with --listen", "a server cannot listen on %s, which is in use by %s", r.Listen, cmp.Or(listener, "another program"))
}

// portListener returns the process that listens on a TCP port, such as "nginx, process 708", "" if it is unknown: it may be another user's.
func portListener(ctx context.Context, port uint32) string {
	conns, _ := psnet.ConnectionsWithContext(ctx, "tcp") // those that are found
	for _, c := range conns {
		if c.Status != "LISTEN" || c.Laddr.Port != port || c.Pid == 0 {
			continue
		}
		p := process.Process{Pid: c.Pid}
		name, _ := p.NameWithContext(ctx) // "" if it has just ended
		return fmt.Sprintf("%s, process %d", name, c.Pid)
	}
	return ""
}

// gangPorts checks the ports on which the first task of a gang listens.
func (r *inspection) gangPorts(context.Context) []Finding {
	const first, last = 20000, 29999 // sched/gang.go
	f := strings.Fields(r.readText("/proc/sys/net/ipv4/ip_local_port_range"))
	if len(f) != 2 {
		return nil
	}
	low, errLow := strconv.Atoi(f[0])
	high, errHigh := strconv.Atoi(f[1])
	reserved := r.readText("/proc/sys/net/ipv4/ip_local_reserved_ports")
	if errLow != nil || errHigh != nil || low > last || high < first || strings.Contains(reserved, "20000-29999") {
		return single("gang-ports", OK, "", "ports %d to %d, on which tasks of gangs listen, are not used for outgoing connections", first, last)
	}
	return single("gang-ports", Note, "`sudo sysctl -w net.ipv4.ip_local_reserved_ports=20000-29999`", "ports %d to %d, on which tasks of gangs listen, may be used by outgoing connections (%d to %d)", first, last, low, high)
}
