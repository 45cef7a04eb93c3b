package python

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

func (l *fileLock) release() { _ = l.file.Close() }

// remove removes an exclusive lock and its file: the environment may never be built again. Processes that wait for it notice this.
func (l *fileLock) remove() {
	_ = os.Remove(l.file.Name()) // a remaining file is harmless
	l.release()
}

// lockStatus is what the holder of a lock publishes in the lock's file.
type lockStatus struct {
	Requester string `json:"for,omitempty"` // the environment is built for it
	Step      string `json:"step"`
}

// publishSteps returns an observer that also publishes each step in the lock's file.
func (l *fileLock) publishSteps(observer run.Observer) run.Observer {
	report := observer.Step
	observer.Step = func(step string) {
		report(step)
		if b, err := json.Marshal(lockStatus{observer.Requester, step}); err == nil {
			_, _ = l.file.WriteAt(append(b, '\n'), 0) // readers ignore the rest of a longer, earlier status
		}
	}
	return observer
}

// Building reports whether a process builds or removes an environment, and describes its step. It only reads, so it works in another
// user's data dir.
func (e *Envs) Building(r Request) (step string, building bool) {
	f, err := os.Open(e.lockPath(r.Name))
	if err != nil {
		return "", false // never built, or unknown
	}
	defer f.Close()
	if !errors.Is(lockFile(f, false), errBusy) {
		return "", false
	}
	var status lockStatus
	if b, err := os.ReadFile(f.Name()); err == nil {
		_ = json.NewDecoder(bytes.NewReader(b)).Decode(&status) // a partial write
	}
	var parts []string
	if status.Requester != "" {
		parts = append(parts, "made for "+status.Requester)
	}
	if status.Step != "" {
		parts = append(parts, strings.TrimPrefix(status.Step, r.Title+": "))
	}
	return strings.Join(parts, ": "), true
}

func (e *Envs) lockPath(name string) string { return filepath.Join(e.root, "locks", name) }

// tryLock acquires the lock of an environment among all processes with this data dir: exclusive to build or remove it, shared to start
// using it. It returns errBusy if it would have to wait.
func (e *Envs) tryLock(name string, exclusive bool) (*fileLock, error) {
	path := e.lockPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lockFile(f, exclusive); err == nil && !isFileAt(f, path) {
		err = errBusy // the holder has removed it
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if exclusive {
		_ = f.Truncate(0) // the status of an earlier holder
	}
	return &fileLock{f}, nil
}

// isFileAt reports whether an open file is still the one at path.
func isFileAt(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(path)
	return err == nil && os.SameFile(opened, current)
}

// lock waits for the lock and acquires it. Meanwhile it reports the holder's status.
func (e *Envs) lock(ctx context.Context, r *Request, exclusive bool, observer run.Observer) (*fileLock, error) {
	var read time.Time
	last := ""
	for {
		l, err := e.tryLock(r.Name, exclusive)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, errBusy) {
			return nil, run.Failf(muster.WorkerInternal, "lock the %s: %w", r.Title, err)
		}
		if time.Since(read) >= statusPollInterval {
			read = time.Now()
			step := "waiting for " + r.Title
			if holder, _ := e.Building(*r); holder != "" {
				step += ", " + holder
			}
			if step != last {
				last = step
				observer.Step(step)
			}
		}
		if backoff.Sleep(ctx, lockPollInterval) != nil {
			return nil, run.Failf(muster.Dependency, "%s was not ready in time: %w", r.Title, context.Cause(ctx))
		}
	}
}
