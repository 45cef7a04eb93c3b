// Package landlock restricts threads with Landlock, the sandbox of Linux. It restricts one thread and what it starts, whatever their
// user, and needs no privilege.
package landlock

// Versions with features that matter; see the kernel's userspace-api/landlock.rst.
const (
	TruncateABI = 3 // truncation of files (Linux 6.2)
	IoctlABI    = 5 // control of devices (6.10)
	StrictABI   = 6 // signals and abstract sockets (6.12): all that a sandbox promises
)
