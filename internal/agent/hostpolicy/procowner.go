package hostpolicy

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/shirou/gopsutil/v4/process"
)

const (
	maxAncestors  = 64                // how many ancestors of a process are checked
	taskEnvPrefix = "MUSTER_ATTEMPT=" // the environment of every task has such an entry
)

type procOwners struct {
	self     int
	program  string            // the name of this program, which all workers and shims run
	previous map[int]ownerKind // of the previous check
	current  map[int]ownerKind // of this check
}

func newProcOwners() *procOwners {
	m := &procOwners{self: os.Getpid()}
	if exe, err := os.Executable(); err == nil {
		m.program = filepath.Base(exe)
	}
	return m
}

// snapshot begins a check. It caches owners from one check to the next.
func (m *procOwners) snapshot(ctx context.Context) ownerFunc {
	m.previous, m.current = m.current, map[int]ownerKind{}
	return func(pid int) ownerKind {
		w, ok := m.previous[pid]
		if !ok {
			w = m.classify(ctx, pid)
		}
		m.current[pid] = w
		return w
	}
}

// classify recognises a task's process by its environment, which may be hidden, and by its ancestors, which may have exited.
func (m *procOwners) classify(ctx context.Context, pid int) ownerKind {
	p, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return ownedByNobody
	}
	if env, err := p.EnvironWithContext(ctx); err == nil {
		for _, e := range env {
			if strings.HasPrefix(e, taskEnvPrefix) {
				return ownedByTask
			}
		}
	}
	if m.isDescendant(ctx, p) {
		return ownedByTask
	}
	if uids, err := p.UidsWithContext(ctx); err == nil && len(uids) > 0 && uids[0] == 0 {
		return ownedByRoot
	}
	return ownedByUser
}

func (m *procOwners) isDescendant(ctx context.Context, p *process.Process) bool {
	for range maxAncestors {
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
