package isolation

import (
	"net"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Program is a program for Spawn to start.
type Program struct {
	Path   string // absolute, or relative to Dir
	Argv   []string
	Env    []string
	Dir    string
	Stdin  *os.File
	Stdout *os.File
	Stderr *os.File

	// OnListener receives the listener on run.ProxyPort of the program's own loopback device, if IsolationSpec.AllowHosts is not
	// empty, after the start of the program. The receiver closes it.
	OnListener func(l net.Listener)
	// NSInit is the command of this program that calls netns.Init. Without privileges, OnListener and the loopback device of a network of
	// its own need it.
	NSInit []string

	extraFile *os.File // open in it as file 3
}

// Spawn starts a program as the leader of a new session: it has no terminal, and cannot join the caller's process group. c applies
// from its first instruction; c may be nil. pidfd is a handle for its end, -1 where the system has none; the caller closes it and
// reaps the process. The calling process does not change. If Spawn fails, nothing runs: the error is a *run.TaskError if c
// is not possible here, else the system's error, such as ENOENT.
func Spawn(c *run.IsolationSpec, p Program) (pid, pidfd int, err error) {
	if c == nil {
		c = &run.IsolationSpec{}
	}
	return spawn(c, &p)
}
