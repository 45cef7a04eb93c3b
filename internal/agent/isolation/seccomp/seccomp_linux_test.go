package seccomp

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// call is a system call whose arguments are refused by the call itself, or that is harmless.
type call struct {
	name string
	nr   uintptr
	args [6]uintptr
	want unix.Errno // in the default filter
}

const (
	bad      = 1 // no address
	noFile   = ^uintptr(0)
	newUser  = unix.CLONE_NEWUSER
	onlyUser = 1 // UFFD_USER_MODE_ONLY
)

// denied are calls that an ordinary user can make, with arguments that do not get EPERM from the call itself; those of root follow.
var denied = []call{
	{"io_uring_setup", unix.SYS_IO_URING_SETUP, [6]uintptr{1, bad}, unix.EPERM},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER, [6]uintptr{noFile}, unix.EPERM},
	{"io_uring_register", unix.SYS_IO_URING_REGISTER, [6]uintptr{noFile}, unix.EPERM},
	{"bpf", unix.SYS_BPF, [6]uintptr{0, bad, 1 << 20}, unix.EPERM},
	{"keyctl", unix.SYS_KEYCTL, [6]uintptr{0, ^uintptr(2)}, unix.EPERM},
	{"add_key", unix.SYS_ADD_KEY, [6]uintptr{bad}, unix.EPERM},
	{"request_key", unix.SYS_REQUEST_KEY, [6]uintptr{bad}, unix.EPERM},
	{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [6]uintptr{0, 0, 0, 0, noFile}, unix.EPERM},
	{"userfaultfd", unix.SYS_USERFAULTFD, [6]uintptr{onlyUser}, unix.EPERM},
	{"unshare", unix.SYS_UNSHARE, [6]uintptr{unix.CLONE_FS}, unix.EPERM},
	{"clone with a user namespace", unix.SYS_CLONE, [6]uintptr{newUser | unix.CLONE_THREAD}, unix.EPERM},
	{"clone with a network", unix.SYS_CLONE, [6]uintptr{unix.CLONE_NEWNET | unix.CLONE_THREAD}, unix.EPERM},
	{"clone3", unix.SYS_CLONE3, [6]uintptr{bad, 0}, unix.ENOSYS},
	{"setns", unix.SYS_SETNS, [6]uintptr{noFile}, unix.EPERM},
	{"mount", unix.SYS_MOUNT, [6]uintptr{0, bad}, unix.EPERM},
	{"umount", unix.SYS_UMOUNT2, [6]uintptr{bad, 1 << 30}, unix.EPERM},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR, [6]uintptr{noFile, bad, 1 << 30}, unix.EPERM},
	{"open_tree", unix.SYS_OPEN_TREE, [6]uintptr{noFile, bad}, unix.EPERM},
	{"chroot", unix.SYS_CHROOT, [6]uintptr{bad}, unix.EPERM},
	{"personality", unix.SYS_PERSONALITY, [6]uintptr{0x0040000}, unix.EPERM}, // ADDR_NO_RANDOMIZE
	{"process_madvise", unix.SYS_PROCESS_MADVISE, [6]uintptr{noFile}, unix.EPERM},
	{"kcmp", unix.SYS_KCMP, [6]uintptr{0, 0, 99}, unix.EPERM},
	{"quotactl", unix.SYS_QUOTACTL, [6]uintptr{noFile}, unix.EPERM},
	{"fanotify_init", unix.SYS_FANOTIFY_INIT, [6]uintptr{0x200}, unix.EPERM},
	{"AF_ALG", unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, unix.EPERM},
	{"AF_VSOCK", unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EPERM},
	{"no family", unix.SYS_SOCKET, [6]uintptr{9999, unix.SOCK_STREAM}, unix.EPERM},
	{"settimeofday", unix.SYS_SETTIMEOFDAY, [6]uintptr{bad}, unix.EPERM},
}

// deniedToRoot are calls that the kernel denies to ordinary users in any case.
var deniedToRoot = []call{
	{"kexec_load", unix.SYS_KEXEC_LOAD, [6]uintptr{0, 1 << 30}, unix.EPERM},
	{"init_module", unix.SYS_INIT_MODULE, [6]uintptr{0, 0, bad}, unix.EPERM},
	{"finit_module", unix.SYS_FINIT_MODULE, [6]uintptr{noFile, bad}, unix.EPERM},
	{"delete_module", unix.SYS_DELETE_MODULE, [6]uintptr{bad}, unix.EPERM},
	{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, [6]uintptr{noFile, bad}, unix.EPERM},
	{"pivot_root", unix.SYS_PIVOT_ROOT, [6]uintptr{bad, bad}, unix.EPERM},
	{"fsopen", unix.SYS_FSOPEN, [6]uintptr{bad}, unix.EPERM},
	{"fsconfig", unix.SYS_FSCONFIG, [6]uintptr{noFile, 99}, unix.EPERM},
	{"fsmount", unix.SYS_FSMOUNT, [6]uintptr{noFile, 99}, unix.EPERM},
	{"move_mount", unix.SYS_MOVE_MOUNT, [6]uintptr{noFile, bad, noFile, bad}, unix.EPERM},
	{"swapon", unix.SYS_SWAPON, [6]uintptr{bad}, unix.EPERM},
	{"acct", unix.SYS_ACCT, [6]uintptr{bad}, unix.EPERM},
	{"reboot", unix.SYS_REBOOT, [6]uintptr{}, unix.EPERM},
	{"syslog", unix.SYS_SYSLOG, [6]uintptr{99}, unix.EPERM},
	{"clock_settime", unix.SYS_CLOCK_SETTIME, [6]uintptr{99}, unix.EPERM},
	{"sethostname", unix.SYS_SETHOSTNAME, [6]uintptr{bad, noFile}, unix.EPERM},
}

// allowed are calls that programs need, some of which other filters deny.
var allowed = []call{
	{name: "getpid", nr: unix.SYS_GETPID, args: [6]uintptr{}},
	{name: "AF_UNIX", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}},
	{name: "AF_INET6", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_INET6, unix.SOCK_STREAM}},
	{name: "AF_NETLINK", nr: unix.SYS_SOCKET, args: [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}},
	{name: "get_mempolicy", nr: unix.SYS_GET_MEMPOLICY, args: [6]uintptr{}},
	{name: "personality", nr: unix.SYS_PERSONALITY, args: [6]uintptr{0xffffffff}},
	{name: "pidfd_getfd", nr: unix.SYS_PIDFD_GETFD, args: [6]uintptr{noFile}},
	{name: "process_vm_readv", nr: unix.SYS_PROCESS_VM_READV, args: [6]uintptr{0, 0, 0, 0, 0, 1}},
	{name: "seccomp", nr: unix.SYS_SECCOMP, args: [6]uintptr{99}},
	{name: "landlock_restrict_self", nr: unix.SYS_LANDLOCK_RESTRICT_SELF, args: [6]uintptr{noFile, 1 << 30}},
	{name: "memfd_create", nr: unix.SYS_MEMFD_CREATE, args: [6]uintptr{bad}},
}

// run makes the calls on a thread of its own, as a user, after enter.
func run(t *testing.T, uid uintptr, calls []call, enter func() error) []unix.Errno {
	t.Helper()
	got := make([]unix.Errno, len(calls))
	onThread(t, func() {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		if uid != uintptr(os.Getuid()) { // of this thread only
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
				t.Error(errno)
				return
			}
		}
		if err := enter(); err != nil {
			t.Error(err)
			return
		}
		for i, c := range calls {
			var fd uintptr
			fd, _, got[i] = unix.Syscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
			if got[i] == 0 && fd > 2 && c.nr == unix.SYS_SOCKET {
				_ = unix.Close(int(fd))
			}
		}
	})
	return got
}

// TestDeniedCalls makes each denied call, as root and as an ordinary user, in the filter and without: only the filter denies it.
func TestDeniedCalls(t *testing.T) {
	users := map[string]uintptr{"this user": uintptr(os.Getuid())}
	if os.Getuid() == 0 {
		users["nobody"] = nobody
	}
	for user, uid := range users {
		t.Run(user, func(t *testing.T) {
			calls := slices.Clone(denied)
			if uid == 0 {
				calls = append(calls, deniedToRoot...)
			}
			without := run(t, uid, calls, func() error { return nil })
			for i, got := range run(t, uid, calls, func() error { return Enter(Default) }) {
				if got != calls[i].want {
					t.Errorf("%s: %v, want %v", calls[i].name, got, calls[i].want)
				}
				if without[i] == calls[i].want {
					t.Logf("%s: %v without the filter, too", calls[i].name, without[i])
				}
			}
			for i, got := range run(t, uid, allowed, func() error { return Enter(Default) }) {
				if got == unix.EPERM {
					t.Errorf("%s: %v", allowed[i].name, got)
				}
			}
			if got := run(t, uid, []call{{name: "a call newer than the profile", nr: 999}}, func() error { return Enter(Default) })[0]; got != unix.ENOSYS {
				t.Errorf("a call newer than the profile: %v, want %v", got, unix.ENOSYS)
			}
		})
	}
}

// TestOtherFilters checks what the other filters allow beyond the default one, and that they deny the rest.
func TestOtherFilters(t *testing.T) {
	for f, allowed := range map[Filter][]string{
		AllowClone3:     {"clone3"},
		AllowNamespaces: {"clone3", "clone with a user namespace", "clone with a network"},
	} {
		for i, got := range run(t, uintptr(os.Getuid()), denied, func() error { return Enter(f) }) {
			c := &denied[i]
			if slices.Contains(allowed, c.name) {
				if got != unix.EINVAL {
					t.Errorf("filter %d: %s: %v, want the kernel's own answer", f, c.name, got)
				}
			} else if got != c.want {
				t.Errorf("filter %d: %s: %v, want %v", f, c.name, got, c.want)
			}
		}
	}
}

// TestFilterNeedsNoNewPrivileges checks that an ordinary thread that could gain privileges cannot enter.
func TestFilterNeedsNoNewPrivileges(t *testing.T) {
	onThread(t, func() {
		if os.Getuid() == 0 {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
				t.Error(errno)
				return
			}
		}
		if err := Enter(Default); !errors.Is(err, unix.EACCES) {
			t.Errorf("it enters: %v", err)
		}
	})
}

// onThread runs f on a thread that ends afterwards.
func onThread(tb testing.TB, f func()) {
	tb.Helper()
	done := make(chan bool)
	for main := true; main; {
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() { // the main thread does not end
				defer runtime.UnlockOSThread()
				done <- true
				return
			}
			f()
			done <- false
		}()
		main = <-done
	}
}

// BenchmarkEnter measures the processor time of the thread that enters: p50-µs is the median.
func BenchmarkEnter(b *testing.B) {
	var times []int64
	for b.Loop() {
		var before, after unix.Timespec
		var err error
		onThread(b, func() {
			if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return
			}
			err = errors.Join(unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before), Enter(Default), unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after))
		})
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, after.Nano()-before.Nano())
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/1e3, "p50-µs")
}
