package isolation

import (
	"net"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Program is what Spawn starts.
type Program struct {
	Path   string // absolute, or relative to Dir
	Argv   []string
	Env    []string
	Dir    string
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File

	// OnListener is given what listens on run.ProxyPort of the program's own loopback device, if
	// Confine.Hosts names some, once the program was started: it is the receiver's then.
	OnListener func(l net.Listener)
	// NSInit is the command of this program that is netns.Helped. It is
	// needed for Gate where this process is not privileged.
	NSInit []string

	extraFile *os.File // is open in it besides the standard three
}

// Spawn starts a program as the leader of a session of its own: it has no terminal,
// and cannot leave its process group for the caller's. It runs within c from its first
// instruction; c may be nil. pidfd is a handle of the system for its end, -1 where
// there is none; it and the reaping of the process are the caller's. The caller
// itself stays as it is. A failure starts nothing: it is a *run.TaskError if c
// cannot be carried out here, else the system's error, such as ENOENT.
func Spawn(c *run.IsolationSpec, p Program) (pid, pidfd int, err error) {
	if c == nil {
		c = &run.IsolationSpec{}
	}
	return spawn(c, &p)
}
