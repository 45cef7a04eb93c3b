package kin

import (
	"bytes"
	"os"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// KillLeftover ends what is left of an attempt whose shim is gone: the process group, if its
// main process is still the recorded one, and every process with its mark. It
// never touches a process that was given a recycled number. It returns an error if some
// of it still lives after 5 seconds.
func KillLeftover(p run.Pid) error { return KillLeftovers([]run.Pid{p}) }

// KillLeftovers does this for several attempts at once: all processes are read once in each round,
// not once for each attempt.
func KillLeftovers(list []run.Pid) error {
	l := newLeftovers(list)
	if l.none() {
		return nil
	}
	for range 50 {
		all := readProcesses()
		found := false
		for _, children := range all {
			for _, st := range children {
				if st.state == 'Z' || st.pid == os.Getpid() || !l.has(st) {
					continue
				}
				if now, err := readStat(st.pid); err == nil && now.start == st.start && l.starts[st.pid] == st.start {
					killGroup(st.pid)
				}
				all.killTree(st)
				found = true
			}
		}
		if !found {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	if len(list) == 1 {
		return run.Failf("", "process %d of an earlier attempt does not end, even when killed", list[0].PID)
	}
	return run.Failf("", "processes of earlier attempts do not end, even when killed")
}

// leftovers tells the processes of some attempts from others.
type leftovers struct {
	starts   map[int]uint64 // of main processes, by their numbers
	marks    map[string]bool
	prefixes []string // marks that any entry which begins with them has
}

func newLeftovers(list []run.Pid) *leftovers {
	l := &leftovers{starts: map[int]uint64{}, marks: map[string]bool{}}
	boot := BootID()
	for _, p := range list {
		if p.BootID != boot {
			continue // the machine was restarted: nothing is left
		}
		if p.PID > 1 && p.StartTicks != 0 {
			l.starts[p.PID] = p.StartTicks
		}
		l.mark(p.Mark)
	}
	return l
}

func (l *leftovers) mark(mark string) {
	switch {
	case mark == "":
	case strings.HasSuffix(mark, "="):
		l.prefixes = append(l.prefixes, mark)
	default:
		l.marks[mark] = true
	}
}

func (l *leftovers) none() bool {
	return len(l.starts) == 0 && len(l.marks) == 0 && len(l.prefixes) == 0
}

func (l *leftovers) has(st stat) bool {
	return l.starts[st.pid] == st.start && st.start != 0 || l.marked(st.pid)
}

// marked reports whether one of the marks is in the environment with which a process was started.
func (l *leftovers) marked(pid int) bool {
	if len(l.marks) == 0 && len(l.prefixes) == 0 {
		return false
	}
	for entry := range bytes.SplitSeq(environ(pid), []byte{0}) {
		if l.marks[string(entry)] {
			return true
		}
		for _, p := range l.prefixes {
			if bytes.HasPrefix(entry, []byte(p)) {
				return true
			}
		}
	}
	return false
}

// marked reports whether an entry that begins with mark is in the environment with
// which a process was started.
func marked(pid int, mark string) bool {
	l := &leftovers{marks: map[string]bool{}}
	l.mark(mark)
	return l.marked(pid)
}
