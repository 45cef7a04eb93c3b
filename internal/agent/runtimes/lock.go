package runtimes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// errBusy is that another holds a lock.
var errBusy = errors.New("it is being made or removed")

// lookAgain is how often it is looked whether a lock is free.
const lookAgain = 100 * time.Millisecond

// hold is a lock that is held. It ends with the process.
type hold struct{ file *os.File }

func (h *hold) release() { _ = h.file.Close() } // which gives the lock back

// try takes the lock of a runtime, which all processes with this data dir keep to: alone, to make
// or remove its environments, or with others, to begin to use one.
func (r *Runtimes) try(name string, alone bool) (*hold, error) {
	dir := filepath.Join(r.dir, "locks")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, alone); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &hold{f}, nil
}

// busy reports whether some process makes or removes a runtime. It changes nothing, also in another user's data dir.
func (r *Runtimes) busy(name string) bool {
	f, err := os.Open(filepath.Join(r.dir, "locks", name))
	if err != nil {
		return false // nobody has ever made it, or that cannot be known
	}
	defer f.Close()
	return errors.Is(lockFile(f, false), errBusy)
}

// wait takes the lock when it is free.
func (r *Runtimes) wait(ctx context.Context, name string, alone bool, watch run.Watch) (*hold, error) {
	told := false
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		h, err := r.try(name, alone)
		if err == nil {
			return h, nil
		}
		if !errors.Is(err, errBusy) {
			return nil, run.Failf(muster.WorkerInternal, "the lock of runtime %s cannot be taken: %w", name, err)
		}
		if !told {
			told = true
			watch.Step("runtime " + name + ": another task is installing it")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, run.Failf(muster.Dependency, "runtime %s was not ready in time: %w", name, context.Cause(ctx))
		}
	}
}
