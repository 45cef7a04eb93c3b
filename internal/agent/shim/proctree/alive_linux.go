package proctree

import (
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Alive reports whether a recorded process, or one with its tag, still runs. It changes nothing.
func Alive(p run.Pid) bool {
	if p.BootID != BootID() {
		return false
	}
	if st, err := readStat(p.PID); p.PID > 1 && p.StartTicks != 0 && err == nil && st.start == p.StartTicks && st.state != 'Z' {
		return true
	}
	if p.EnvTag == "" {
		return false
	}
	for _, pid := range allPIDs() {
		if st, err := readStat(pid); err == nil && pid != os.Getpid() && st.state != 'Z' && hasEnvTag(pid, p.EnvTag) {
			return true
		}
	}
	return false
}

// Identify returns the identity of a running process.
func Identify(pid int) run.Pid {
	p := run.Pid{PID: pid, BootID: BootID()}
	if st, err := readStat(pid); err == nil {
		p.StartTicks = st.start
	}
	return p
}
