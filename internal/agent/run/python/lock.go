package python

import (
	"context"
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

// publishSteps returns an observer that also writes each step into the lock's file, for processes that wait.
func (l *fileLock) publishSteps(title string, observer run.Observer) run.Observer {
	report := observer.Step
	observer.Step = func(step string) {
		report(step)
		text := strings.TrimPrefix(step, title+": ")
		if observer.Requester != "" {
			text = "made for " + observer.Requester + ": " + text
		}
		_, _ = l.file.WriteAt([]byte(text+"\n"), 0) // readers ignore the rest of a longer, earlier step
	}
	return observer
}

// Building reports whether a process builds or removes an environment, and describes its step. It only reads, so it works in another
// user's data dir.
func (e *Envs) Building(name string) (step string, building bool) {
	f, err := os.Open(e.lockPath(name))
	if err != nil {
		return "", false // never built, or unknown
	}
	defer f.Close()
	if !errors.Is(lockFile(f, false), errBusy) {
		return "", false
	}
	b, _ := os.ReadFile(f.Name()) // the step is unknown
	step, _, _ = strings.Cut(string(b), "\n")
	return step, true
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
			if holder, _ := e.Building(r.Name); holder != "" {
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
