package app

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"unsafe"
)

// overwriteSecrets overwrites tokens in the memory that /proc/PID/cmdline shows: the strings of os.Args point into it.
func overwriteSecrets(args []string) {
	secrets := slices.DeleteFunc(secretValues(args), func(s string) bool { return s == "" })
	if len(secrets) == 0 {
		return
	}
	begin, end := argvRange()
	for _, text := range secrets {
		data := unsafe.StringData(text)                                                           //nolint:gosec // see below
		if addr := uintptr(unsafe.Pointer(data)); addr < begin || addr+uintptr(len(text)) > end { //nolint:gosec // only compared
			continue
		}
		for i := range unsafe.Slice(data, len(text)) { //nolint:gosec // it is this process's own memory, and no constant
			unsafe.Slice(data, len(text))[i] = '*' //nolint:gosec // see above
		}
	}
}

// argvRange returns the address range of the arguments; see arg_start in proc_pid_stat(5). It is empty without /proc.
func argvRange() (begin, end uintptr) {
	const first, argStart = 3, 48 // numbers of the first field after the name and of arg_start
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= argStart+1-first {
		return 0, 0
	}
	from, err := strconv.ParseUint(string(fields[argStart-first]), 10, 64)
	if err != nil {
		return 0, 0
	}
	to, err := strconv.ParseUint(string(fields[argStart+1-first]), 10, 64)
	if err != nil {
		return 0, 0
	}
	return uintptr(from), uintptr(to)
}
