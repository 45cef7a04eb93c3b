// Package seccomp denies threads, and what they start, the system calls that container engines deny by default: those that only an
// administrator needs, and those that are rare and were the way into the kernel again and again, such as io_uring, bpf, keyctl and new
// user namespaces. A denied call fails with EPERM; one that is newer than the profile with ENOSYS, so that programs use an older one.
package seccomp

// Filter is a set of denied calls.
type Filter int

// The filters.
const (
	// Default is Docker's default profile for a container without capabilities. clone3 fails with ENOSYS, since its flags cannot be seen.
	Default Filter = iota
	// AllowClone3 is Default with clone3, which alone creates a process in a control group of version 2.
	AllowClone3
	// AllowNamespaces is Default with clone3 and new namespaces by clone.
	AllowNamespaces
)
