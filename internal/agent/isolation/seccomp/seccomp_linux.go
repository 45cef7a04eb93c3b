package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Enter restricts the calling thread, and what it starts, irrevocably. The thread must have no_new_privs.
func Enter(f Filter) error {
	program := programs()[f]
	if len(program) == 0 {
		return fmt.Errorf("there is no filter of system calls for %s", runtime.GOARCH)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Without this flag, kernels before 5.16 slow the program down against Spectre v4, as engines do not.
	err := install(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog)
	if errors.Is(err, unix.EINVAL) { // before 4.17
		err = install(0, &prog)
	}
	return os.NewSyscallError("seccomp", err)
}

func install(flags uintptr, prog *unix.SockFprog) error {
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(prog))); errno != 0 { //nolint:gosec // there is no other way to call it
		return errno
	}
	return nil
}

// programs returns the program of each filter.
var programs = sync.OnceValue(func() [AllowNamespaces + 1][]unix.SockFilter {
	var list [AllowNamespaces + 1][]unix.SockFilter
	for f := range list {
		for _, in := range instructions {
			list[f] = append(list[f], unix.SockFilter{Code: uint16(in >> 48), Jt: uint8(in >> 40), Jf: uint8(in >> 32), K: uint32(in)})
		}
	}
	for _, f := range []Filter{AllowClone3, AllowNamespaces} {
		for _, i := range clone3Decisions {
			list[f][i].K = unix.SECCOMP_RET_ALLOW
		}
	}
	for _, i := range cloneMasks {
		list[AllowNamespaces][i].K = 0 // no flag is denied
	}
	return list
})
