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
)

// errBusy is that another holds a lock.
var errBusy = errors.New("it is being made or removed")

// How often it is looked whether a lock is free, and what its holder does.
const (
	lockPollInterval   = 100 * time.Millisecond
	statusPollInterval = time.Second
)

// fileLock is a lock that is held. It ends with the process.
type fileLock struct{ file *os.File }

func (h *fileLock) release() { _ = h.file.Close() } // which gives the lock back

// lockStatus is what the holder of a lock tells those who wait for it, in the lock's file.
type lockStatus struct {
	Requester string `json:"for,omitempty"` // whom the runtime is made for
	Step      string `json:"step"`
}

// setStatus leaves word for others. That it cannot is no harm.
func (h *fileLock) setStatus(w lockStatus) {
	if b, err := json.Marshal(w); err == nil {
		_, _ = h.file.WriteAt(append(b, '\n'), 0) // what was longer before stays behind it, unread
	}
}

// text says what is being done, and for whom.
func (w lockStatus) text() string {
	switch {
	case w.Requester == "":
		return w.Step
	case w.Step == "":
		return "made for " + w.Requester
	}
	return "made for " + w.Requester + ": " + w.Step
}

// publishSteps is watch, whose steps those who wait are told, too.
func (h *fileLock) publishSteps(observer run.Observer) run.Observer {
	report := observer.Step
	observer.Step = func(step string) {
		report(step)
		h.setStatus(lockStatus{observer.Requester, step})
	}
	return observer
}

// lockHolder returns what the one who holds a lock alone is doing; none, if there is none or it cannot be known.
func (r *Runtimes) lockHolder(name string) (w lockStatus) {
	if !r.busy(name) {
		return w
	}
	if b, err := os.ReadFile(r.lockPath(name)); err == nil {
		_ = json.NewDecoder(bytes.NewReader(b)).Decode(&w) // half a word is none
	}
	w.Step = strings.TrimPrefix(w.Step, "runtime "+name+": ")
	return w
}

// lockPath is the path of a runtime's lock.
func (r *Runtimes) lockPath(name string) string { return filepath.Join(r.dir, "locks", name) }

// tryLock takes the lock of a runtime, which all processes with this data dir keep to: alone, to make
// or remove its environments, or with others, to begin to use one.
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
		_ = f.Truncate(0) // the word of one who ended
	}
	return &fileLock{f}, nil
}

// busy reports whether some process makes or removes a runtime. It changes nothing, also in another user's data dir.
func (r *Runtimes) busy(name string) bool {
	f, err := os.Open(r.lockPath(name))
	if err != nil {
		return false // nobody has ever made it, or that cannot be known
	}
	defer f.Close()
	return errors.Is(lockFile(f, false), errBusy)
}

// lock takes the lock when it is free.
func (r *Runtimes) lock(ctx context.Context, name string, exclusive bool, observer run.Observer) (*fileLock, error) {
	var read time.Time
	last := ""
	tick := time.NewTicker(lockPollInterval)
	defer tick.Stop()
	for {
		h, err := r.tryLock(name, exclusive)
		if err == nil {
			return h, nil
		}
		if !errors.Is(err, errBusy) {
			return nil, run.Failf(muster.WorkerInternal, "the lock of runtime %s cannot be taken: %w", name, err)
		}
		if time.Since(read) >= statusPollInterval {
			read = time.Now()
			if now := r.waitingStep(name); now != last {
				last = now
				observer.Step(now)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, run.Failf(muster.Dependency, "runtime %s was not ready in time: %w", name, context.Cause(ctx))
		}
	}
}

// waitingStep is the step of who waits for a runtime.
func (r *Runtimes) waitingStep(name string) string {
	text := "waiting for runtime " + name
	if holder := r.lockHolder(name).text(); holder != "" {
		text += ", " + holder
	}
	return text
}
