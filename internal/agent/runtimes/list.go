package runtimes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// State is the state of a runtime on this machine.
type State string

// The states.
const (
	Absent     State = "not installed"
	Building   State = "building" // or being removed, by some process
	Ready      State = "ready"
	Broken     State = "broken"         // damaged: it is rebuilt when it is used next
	External   State = "given"          // the operator's interpreter, with all packages
	Incomplete State = "lacks packages" // the operator's interpreter, with missing packages
)

// Entry is one runtime on this machine.
type Entry struct {
	Name     string      `json:"name"`
	State    State       `json:"state"`
	Reason   string      `json:"why,omitempty"`    // why it is broken, or what is missing
	Step     string      `json:"step,omitempty"`   // of a build, and the requester
	Size     muster.Size `json:"size,omitempty"`   // of its environment, including shared files
	Used     muster.Time `json:"used,omitzero"`    // last use
	Built    muster.Time `json:"built,omitzero"`   // end of the build
	Packages int         `json:"packages"`         // in its lock file
	Python   string      `json:"python,omitempty"` // path of its interpreter
	Folder   string      `json:"folder,omitempty"` // of its environment
	Outdated int         `json:"old,omitempty"`    // number of environments of its other versions
}

// List returns the named runtimes, or all without names. It checks each file of each package.
func (r *Runtimes) List(ctx context.Context, names ...string) ([]Entry, error) {
	if len(names) == 0 {
		var err error
		if names, err = r.Names(); err != nil {
			return nil, err
		}
	}
	envs, err := r.environments()
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "list the runtimes of %s: %w", r.cfg.Dir, err)
	}
	list := make([]Entry, 0, len(names))
	for _, name := range names {
		d, err := r.definition(name)
		if err != nil {
			return nil, err
		}
		e, err := r.entry(ctx, d)
		if err != nil {
			return nil, err
		}
		for _, p := range envs {
			if p.name == name && p.dir != e.Folder {
				e.Outdated++
			}
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *Runtimes) entry(ctx context.Context, d *definition) (Entry, error) {
	e := Entry{Name: d.name, State: Absent, Packages: len(d.lock)}
	if r.cfg.Python != "" {
		e.State, e.Python = External, r.cfg.Python
		if _, err := r.external(ctx, d, nil); err != nil {
			e.State, e.Reason = Broken, err.Error()
			if _, isMissing := errors.AsType[*missingError](err); isMissing {
				e.State = Incomplete
			}
		}
		return e, nil
	}
	dir, err := r.envDir(d)
	if err != nil {
		return e, err
	}
	rec, used, err := readRecord(dir)
	if err == nil {
		e.Folder, e.Python = dir, filepath.Join(dir, "bin", "python")
		e.Size, e.Built, e.Used = rec.Size, rec.Built, muster.NewTime(used)
	}
	switch {
	case r.busy(d.name):
		e.State, e.Step = Building, r.lockHolder(d.name).text()
	case err == nil:
		e.State = Ready
		if err = r.envs.CheckInterpreter(ctx, dir); err == nil {
			err = rec.Check(ctx, dir)
		}
		if err != nil {
			e.State, e.Reason = Broken, err.Error()
		}
	case !errors.Is(err, errAbsent):
		e.State, e.Reason, e.Folder = Broken, err.Error(), dir
	}
	return e, nil
}

// Remove removes all environments of a runtime and empties the cache. It returns how much that freed, and a Conflict error if a process
// uses the runtime.
func (r *Runtimes) Remove(ctx context.Context, name string, observer run.Observer) (freed muster.Size, err error) {
	if _, err := r.definition(name); err != nil {
		return 0, err
	}
	h, err := r.lock(ctx, name, true, observer)
	if err != nil {
		return 0, err
	}
	defer h.release()
	r.removeUnfinished(name)
	all, err := r.environments()
	if err != nil {
		return 0, muster.Errorf(muster.Internal, "list the runtimes of %s: %w", r.cfg.Dir, err)
	}
	b := r.diskUsage()
	for _, p := range all {
		if p.name != name {
			continue
		}
		if pids := usersOf(p.dir); len(pids) > 0 {
			return freed, muster.Errorf(muster.Conflict, "runtime %s is in use by %s: wait until its tasks end, or cancel them", name, formatPIDs(pids))
		}
		if err := r.removeEnv(p.dir); err != nil {
			return freed, muster.Errorf(muster.Internal, "remove runtime %s: %w", name, err)
		}
		freed += b.remove(p.dir)
	}
	if _, err := os.Lstat(r.envs.CacheDir()); errors.Is(err, fs.ErrNotExist) {
		return freed, nil // do not fetch uv only to empty a missing cache
	}
	if err := r.envs.CleanCache(ctx); err != nil {
		return freed, muster.Errorf(muster.Internal, "remove cached packages: %w", err)
	}
	return freed + b.remove(r.envs.CacheDir()), nil
}

// formatPIDs names the first process and the number of others.
func formatPIDs(pids []int) string {
	text := "process " + strconv.Itoa(pids[0])
	if more := len(pids) - 1; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}
