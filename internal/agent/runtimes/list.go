package runtimes

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
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
		names = r.Names()
	}
	envs, err := r.list()
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(names))
	for _, name := range names {
		d, err := r.definition(name)
		if err != nil {
			return nil, err
		}
		e := r.entry(ctx, d)
		for _, p := range envs {
			if runtimeOf(p.Name) == name && r.envs.Path(p.Name) != e.Folder {
				e.Outdated++
			}
		}
		list = append(list, e)
	}
	return list, nil
}

func (r *Runtimes) entry(ctx context.Context, d *definition) Entry {
	e := Entry{Name: d.name, State: Absent, Packages: len(d.lock)}
	if r.cfg.Python != "" {
		e.State, e.Python = External, r.cfg.Python
		if _, err := r.external(ctx, d, nil); err != nil {
			e.State, e.Reason = Broken, err.Error()
			if _, isMissing := errors.AsType[*missingError](err); isMissing {
				e.State = Incomplete
			}
		}
		return e
	}
	request := r.request(d, run.Observer{})
	env, err := r.envs.Load(request.Name)
	if !errors.Is(err, python.ErrAbsent) {
		e.Folder = r.envs.Path(request.Name)
	}
	if err == nil {
		e.Python = python.InterpreterPath(e.Folder)
		e.Size, e.Built, e.Used = env.Size, env.Built, muster.NewTime(env.Used)
	}
	if step, building := r.envs.Building(request.Name); building {
		e.State, e.Step = Building, step
		return e
	}
	if err == nil {
		e.State = Ready
		err = r.envs.Check(ctx, env)
	}
	if err != nil && !errors.Is(err, python.ErrAbsent) {
		e.State, e.Reason = Broken, err.Error()
	}
	return e
}

// Disk returns the disk usage of all runtimes and of each.
func (r *Runtimes) Disk() python.Usage { return r.envs.Usage(runtimeOf) }

// Remove removes all environments of a runtime and empties the cache. It returns how much that freed, also with an error, which is a Conflict if a process
// uses the runtime.
func (r *Runtimes) Remove(ctx context.Context, name string, observer run.Observer) (freed muster.Size, err error) {
	d, err := r.definition(name)
	if err != nil {
		return 0, err
	}
	all, err := r.list()
	if err != nil {
		return 0, err
	}
	before := r.Disk().Total
	request := r.request(d, observer)
	envs := []string{request.Name}
	for _, env := range all {
		if runtimeOf(env.Name) == name && env.Name != request.Name {
			envs = append(envs, env.Name)
		}
	}
	for _, request.Name = range envs {
		if err := r.envs.Remove(ctx, request, observer); err != nil {
			return before - r.Disk().Total, err
		}
	}
	if err := r.envs.CleanCache(ctx); err != nil {
		return 0, muster.Errorf(muster.Internal, "remove cached packages: %w", err)
	}
	return before - r.Disk().Total, nil
}

// list returns all environments, of any version of Muster.
func (r *Runtimes) list() ([]*python.Env, error) {
	all, err := r.envs.List()
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "list the runtimes of %s: %w", r.cfg.Dir, err)
	}
	return all, nil
}
