package shim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

const (
	sockFile = "sock"
	keyFile  = "key"
	pidFile  = "pid" // of the shim's own process
)

// stateDir is the folder of one shim: where it listens, what one has to know to talk to
// it, and what runs if it is gone. Whoever ends last removes it.
type stateDir struct {
	path string
	data string // the worker's data dir
	key  string
}

// shimsDir is where the homes are.
func shimsDir(data string) string { return filepath.Join(data, "shim") }

// newStateDir makes the home of a new shim.
func newStateDir(data string) (*stateDir, error) {
	if err := os.MkdirAll(shimsDir(data), 0o700); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "there is no folder for the shim: %w", err)
	}
	dir, err := os.MkdirTemp(shimsDir(data), "")
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "there is no folder for the shim: %w", err)
	}
	d := &stateDir{path: dir, data: data, key: rand.Text()}
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte(d.key), 0o600); err != nil {
		return nil, errors.Join(run.Failf(muster.WorkerInternal, "the folder of the shim cannot be written: %w", err), os.RemoveAll(dir))
	}
	return d, nil
}

// listStateDirs lists the homes of earlier lives.
func listStateDirs(data string) ([]*stateDir, error) {
	entries, err := os.ReadDir(shimsDir(data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "the folder of shims cannot be read: %w", err)
	}
	var dirs []*stateDir
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(shimsDir(data), e.Name())
		key, err := os.ReadFile(filepath.Join(dir, keyFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, muster.Errorf(muster.Internal, "the folder of a shim cannot be read: %w", err)
		}
		dirs = append(dirs, &stateDir{path: dir, data: data, key: strings.TrimSpace(string(key))})
	}
	return dirs, nil
}

// logPath is where shims complain.
func (d *stateDir) logPath() string { return filepath.Join(d.data, "shim.log") }

// pidRecord is the process that lives in a home, or lived.
type pidRecord struct {
	run.Pid

	Dir fileID `json:"home,omitzero"` // zero in homes of earlier builds
}

// fileID is where a folder is on its disk: that of a copy is another one, whatever is in it.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// writePID notes that this process lives here.
func (d *stateDir) writePID(p run.Pid) error {
	here, err := fileIDOf(d.path)
	if err != nil {
		return err
	}
	b, err := json.Marshal(pidRecord{p, here})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.path, pidFile), b, 0o600)
}

// pid is the process that lives here, or lived.
func (d *stateDir) pid() run.Pid { return d.readPID().Pid }

func (d *stateDir) readPID() pidRecord {
	var o pidRecord
	b, err := os.ReadFile(filepath.Join(d.path, pidFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return pidRecord{} // it never came so far
	}
	return o
}

// originalPID reports whether this is a copy of the home of a shim that runs, which it returns. That process, and
// the tasks that the copy lists, are another worker's.
func (d *stateDir) originalPID() (run.Pid, bool) {
	o := d.readPID()
	if o.PID == 0 || !proctree.Alive(o.Pid) {
		return run.Pid{}, false
	}
	if o.Dir == (fileID{}) {
		return o.Pid, d.startedElsewhere(o.PID)
	}
	here, err := fileIDOf(d.path)
	return o.Pid, err == nil && here != o.Dir
}

func (d *stateDir) isCopy() bool {
	_, isCopy := d.originalPID()
	return isCopy
}

// checkCopy waits a little for the shim of which this home is a copy to end, as it does when its own home was deleted:
// then the copy is what is left of that. Else it returns an error: to end that shim, or what it runs, is not up to the
// worker of a copy.
func (d *stateDir) checkCopy(ctx context.Context) error {
	for deadline := time.Now().Add(copyTimeout); ; {
		p, isCopy := d.originalPID()
		switch {
		case !isCopy:
			return nil
		case time.Now().After(deadline):
			return muster.Errorf(muster.Conflict,
				"the data dir %s is a copy of one that is in use on this machine, where process %d supervises tasks: a worker cannot run twice. To make another worker of the copy, delete the folder shim and the file identity.json in it, and start it with --token",
				d.data, p.PID)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(copyPollInterval):
		}
	}
}

const (
	copyTimeout      = 5 * time.Second
	copyPollInterval = 100 * time.Millisecond
)

// killAndRemove ends what the shim and its tasks left, and removes the home.
func (d *stateDir) killAndRemove(shim run.Pid, log *slog.Logger) {
	if shim.PID == 0 {
		if p, isCopy := d.originalPID(); isCopy {
			log.Error("the folder of a shim is a copy; it is left alone", slog.String("folder", d.path), slog.Int("pid", p.PID))
			return
		}
		shim = d.pid()
	}
	if shim.PID > 0 && shim.PID != os.Getpid() {
		shim.EnvTag = ""
		if err := proctree.KillOrphan(shim); err != nil {
			log.Error("a shim does not end, even when killed", slog.Int("pid", shim.PID), slog.Any("error", err))
		}
	}
	proctree.KillRecordedOrphans(d.path, log)
	d.remove(log)
}

func (d *stateDir) remove(log *slog.Logger) {
	if err := os.RemoveAll(d.path); err != nil {
		log.Warn("the folder of a shim stays", slog.String("folder", d.path), slog.Any("error", err))
	}
}

// buildID tells one build of this program from another.
func buildID() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	info, err := os.Stat(selfPath(path))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d bytes of %d", info.Size(), info.ModTime().UnixNano())
}
