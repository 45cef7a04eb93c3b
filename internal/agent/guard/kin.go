package guard

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/shirou/gopsutil/v4/process"
)

const (
	mostParents = 64                // how far up a process's parents are followed
	taskEntry   = "MUSTER_ATTEMPT=" // begins an entry of every task's environment
)

// machine tells whose processes are on this machine.
type machine struct {
	self    int
	program string        // the name of this program, of which all workers and supervisors here are
	known   map[int]whose // by the look before
	seen    map[int]whose // by this one
}

func newMachine() *machine {
	m := &machine{self: os.Getpid()}
	if exe, err := os.Executable(); err == nil {
		m.program = filepath.Base(exe)
	}
	return m
}

// look begins a look: what is asked for again and again is found out once.
func (m *machine) look(ctx context.Context) kin {
	m.known, m.seen = m.seen, map[int]whose{}
	return func(pid int) whose {
		w, ok := m.known[pid]
		if !ok {
			w = m.find(ctx, pid)
		}
		m.seen[pid] = w
		return w
	}
}

// find tells a task's process by its environment, which may be hidden, and by
// its parents, which it may have lost.
func (m *machine) find(ctx context.Context, pid int) whose {
	p, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return nobody
	}
	if env, err := p.EnvironWithContext(ctx); err == nil {
		for _, e := range env {
			if strings.HasPrefix(e, taskEntry) {
				return ofTask
			}
		}
	}
	if m.descends(ctx, p) {
		return ofTask
	}
	if uids, err := p.UidsWithContext(ctx); err == nil && len(uids) > 0 && uids[0] == 0 {
		return ofRoot
	}
	return somebody
}

func (m *machine) descends(ctx context.Context, p *process.Process) bool {
	for range mostParents {
		if int(p.Pid) == m.self {
			return true
		}
		if name, err := p.NameWithContext(ctx); err == nil && m.program != "" && name == m.program {
			return true
		}
		parent, err := p.PpidWithContext(ctx)
		if err != nil || parent <= 1 {
			return false
		}
		if p, err = process.NewProcessWithContext(ctx, parent); err != nil {
			return false
		}
	}
	return false
}
