package runtimes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

// errBusy means that another process holds a conflicting lock.
var errBusy = errors.New("it is being built or removed")

// Intervals of a process that waits for a lock.
const (
	lockPollInterval   = 100 * time.Millisecond
	statusPollInterval = time.Second
)

// fileLock is an acquired lock. The system releases it when the process exits.
type fileLock struct{ file *os.File }

func (h *fileLock) release() { _ = h.file.Close() }

// lockStatus is what the holder of a lock publishes in the lock's file.
type lockStatus struct {
	Requester string `json:"for,omitempty"` // the runtime is built for it
	Step      string `json:"step"`
}

// setStatus publishes a status. It ignores errors.
func (h *fileLock) setStatus(w lockStatus) {
	if b, err := json.Marshal(w); err == nil {
		_, _ = h.file.WriteAt(append(b, '\n'), 0) // readers ignore the rest of a longer, earlier status
	}
}

// text describes the status in one line.
func (w lockStatus) text() string {
	switch {
	case w.Requester == "":
		return w.Step
	case w.Step == "":
		return "made for " + w.Requester
	}
	return "made for " + w.Requester + ": " + w.Step
}

// publishSteps returns an observer that also publishes each step as status.
func (h *fileLock) publishSteps(observer run.Observer) run.Observer {
	report := observer.Step
	observer.Step = func(step string) {
		report(step)
		h.setStatus(lockStatus{observer.Requester, step})
	}
	return observer
}

// lockHolder returns the status of the process with the exclusive lock, zero if there is none or it is unknown.
func (r *Runtimes) lockHolder(name string) (w lockStatus) {
	if !r.busy(name) {
		return w
	}
	if b, err := os.ReadFile(r.lockPath(name)); err == nil {
		_ = json.NewDecoder(bytes.NewReader(b)).Decode(&w) // a partial write
	}
	w.Step = strings.TrimPrefix(w.Step, "runtime "+name+": ")
	return w
}

func (r *Runtimes) lockPath(name string) string { return filepath.Join(r.dir, "locks", name) }

// tryLock acquires the lock of a runtime among all processes with this data dir: exclusive to build or remove its environments, shared
// to start using one. It returns errBusy if it would have to wait.
func (r *Runtimes) tryLock(name string, exclusive bool) (*fileLock, error) {
	path := r.lockPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, exclusive); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if exclusive {
		_ = f.Truncate(0) // the status of an earlier holder
	}
	return &fileLock{f}, nil
}

// busy reports whether a process builds or removes a runtime. It only reads, so it works in another user's data dir.
func (r *Runtimes) busy(name string) bool {
	f, err := os.Open(r.lockPath(name))
	if err != nil {
		return false // never built, or unknown
	}
	defer f.Close()
	return errors.Is(lockFile(f, false), errBusy)
}

// lock waits for the lock and acquires it. Meanwhile it reports the holder's status.
func (r *Runtimes) lock(ctx context.Context, name string, exclusive bool, observer run.Observer) (*fileLock, error) {
	var read time.Time
	last := ""
	for {
		h, err := r.tryLock(name, exclusive)
		if err == nil {
			return h, nil
		}
		if !errors.Is(err, errBusy) {
			return nil, run.Failf(muster.WorkerInternal, "lock runtime %s: %w", name, err)
		}
		if time.Since(read) >= statusPollInterval {
			read = time.Now()
			if now := r.waitingStep(name); now != last {
				last = now
				observer.Step(now)
			}
		}
		if backoff.Sleep(ctx, lockPollInterval) != nil {
			return nil, run.Failf(muster.Dependency, "runtime %s was not ready in time: %w", name, context.Cause(ctx))
		}
	}
}

// waitingStep returns the step to report while waiting for a runtime.
func (r *Runtimes) waitingStep(name string) string {
	text := "waiting for runtime " + name
	if holder := r.lockHolder(name).text(); holder != "" {
		text += ", " + holder
	}
	return text
}
