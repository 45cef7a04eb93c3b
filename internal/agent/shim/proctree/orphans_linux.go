package proctree

import (
	"bytes"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// KillOrphan kills what is left of an attempt whose shim exited: the process group, if its main process is still the recorded one, and every
// process with its tag. It never touches a process with a reused PID. It returns an error if some of them still run after 5 seconds.
func KillOrphan(p run.Pid) error { return KillOrphans([]run.Pid{p}) }

// KillOrphans is KillOrphan for several attempts: all processes are read once in each round, not once for each attempt.
func KillOrphans(list []run.Pid) error {
	s := newOrphanSet(list)
	if s.empty() {
		return nil
	}
	for range 50 {
		procs := readProcesses()
		found := false
		for _, children := range procs {
			for _, st := range children {
				if st.State == 'Z' || st.PID == os.Getpid() || !s.contains(st) {
					continue
				}
				if now, ok := procfs.ReadStat(st.PID); ok && now.Start == st.Start && s.starts[st.PID] == st.Start {
					killGroup(st.PID)
				}
				procs.killTree(st)
				found = true
			}
		}
		if !found {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(list) == 1 {
		return run.Failf("", "process %d of an earlier attempt survives SIGKILL", list[0].PID)
	}
	return run.Failf("", "processes of earlier attempts survive SIGKILL")
}

// orphanSet matches the processes of some attempts.
type orphanSet struct {
	starts   map[int]uint64 // of main processes, by PID
	envTags  map[string]bool
	prefixes []string // tags that match any entry with this prefix
}

func newOrphanSet(list []run.Pid) *orphanSet {
	s := &orphanSet{starts: map[int]uint64{}, envTags: map[string]bool{}}
	boot := BootID()
	for _, p := range list {
		if p.BootID != boot {
			continue // the machine was rebooted
		}
		if p.PID > 1 && p.StartTicks != 0 {
			s.starts[p.PID] = p.StartTicks
		}
		s.envTag(p.EnvTag)
	}
	return s
}

func (s *orphanSet) envTag(envTag string) {
	switch {
	case envTag == "":
	case strings.HasSuffix(envTag, "="):
		s.prefixes = append(s.prefixes, envTag)
	default:
		s.envTags[envTag] = true
	}
}

func (s *orphanSet) empty() bool {
	return len(s.starts) == 0 && len(s.envTags) == 0 && len(s.prefixes) == 0
}

func (s *orphanSet) contains(st procfs.Stat) bool {
	return s.starts[st.PID] == st.Start && st.Start != 0 || s.hasEnvTag(st.PID)
}

// hasEnvTag reports whether a process was started with one of the tags in its environment.
func (s *orphanSet) hasEnvTag(pid int) bool {
	if len(s.envTags) == 0 && len(s.prefixes) == 0 {
		return false
	}
	for entry := range bytes.SplitSeq(environ(pid), []byte{0}) {
		if s.envTags[string(entry)] {
			return true
		}
		for _, p := range s.prefixes {
			if bytes.HasPrefix(entry, []byte(p)) {
				return true
			}
		}
	}
	return false
}

// hasEnvTag reports whether a process was started with envTag in its environment. A tag that ends in "=" matches any value.
func hasEnvTag(pid int, envTag string) bool {
	s := &orphanSet{envTags: map[string]bool{}}
	s.envTag(envTag)
	return s.hasEnvTag(pid)
}

// Alive reports whether a recorded process, or one with its tag, still runs. It changes nothing.
func Alive(p run.Pid) bool {
	if p.BootID != BootID() {
		return false
	}
	if st, ok := procfs.ReadStat(p.PID); p.PID > 1 && p.StartTicks != 0 && ok && st.Start == p.StartTicks && st.State != 'Z' {
		return true
	}
	if p.EnvTag == "" {
		return false
	}
	for _, st := range procfs.ReadStats() {
		if st.PID != os.Getpid() && st.State != 'Z' && hasEnvTag(st.PID, p.EnvTag) {
			return true
		}
	}
	return false
}

// Identify returns the identity of a running process.
func Identify(pid int) run.Pid {
	p := run.Pid{PID: pid, BootID: BootID()}
	if st, ok := procfs.ReadStat(pid); ok {
		p.StartTicks = st.Start
	}
	return p
}
