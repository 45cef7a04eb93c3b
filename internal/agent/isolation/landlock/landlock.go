// Package landlock puts threads into sandboxes. Landlock restricts one thread and what it
// starts, whoever it runs as, and needs no privilege.
package landlock

// Versions that matter; see the kernel's userspace-api/landlock.rst.
const (
	TruncateABI = 3 // files can be kept from being cut off (Linux 6.2)
	IoctlABI    = 5 // devices from being controlled (6.10)
	StrictABI   = 6 // signals and abstract sockets (6.12): nothing is left out that a sandbox promises
)
