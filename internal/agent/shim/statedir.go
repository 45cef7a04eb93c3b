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
	"github.com/muster-dev/muster/internal/backoff"
)

const (
	sockFile = "sock"
	keyFile  = "key"
	pidFile  = "pid" // of the shim's own process
)

// stateDir is the directory of one shim: its socket, its key, and the record of its processes. The last process that uses it removes it.
type stateDir struct {
	path string
	data string // the worker's data dir
	key  string
}

// shimsDir returns the parent of all state directories.
func shimsDir(data string) string { return filepath.Join(data, "shim") }

func newStateDir(data string) (*stateDir, error) {
	dir, err := "", os.MkdirAll(shimsDir(data), 0o700)
	if err == nil {
		dir, err = os.MkdirTemp(shimsDir(data), "")
	}
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "cannot create the directory of the shim: %w", err)
	}
	d := &stateDir{path: dir, data: data, key: rand.Text()}
	if err := os.WriteFile(filepath.Join(dir, keyFile), []byte(d.key), 0o600); err != nil {
		return nil, errors.Join(run.Failf(muster.WorkerInternal, "cannot write the directory of the shim: %w", err), os.RemoveAll(dir))
	}
	return d, nil
}

func listStateDirs(data string) ([]*stateDir, error) {
	entries, err := os.ReadDir(shimsDir(data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "cannot read the directory of shims: %w", err)
	}
	var dirs []*stateDir
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(shimsDir(data), e.Name())
		key, err := os.ReadFile(filepath.Join(dir, keyFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, muster.Errorf(muster.Internal, "cannot read the directory of a shim: %w", err)
		}
		dirs = append(dirs, &stateDir{path: dir, data: data, key: strings.TrimSpace(string(key))})
	}
	return dirs, nil
}

// logPath returns the path of the log of all shims.
func (d *stateDir) logPath() string { return filepath.Join(d.data, "shim.log") }

// pidRecord is the process of a shim.
type pidRecord struct {
	run.Pid

	Dir fileID `json:"home,omitzero"` // zero if it is unknown
}

// fileID identifies a directory on its disk: a copy has another one.
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// writePID records that this process is the shim of the directory.
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

// pid returns the process of the shim, which may have exited.
func (d *stateDir) pid() run.Pid { return d.readPID().Pid }

func (d *stateDir) readPID() pidRecord {
	var o pidRecord
	b, err := os.ReadFile(filepath.Join(d.path, pidFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return pidRecord{} // it exited before it recorded its PID
	}
	return o
}

// originalPID reports whether this is a copy of the directory of a running shim, which it returns. That process, and the tasks that the copy
// records, belong to another worker.
func (d *stateDir) originalPID() (run.Pid, bool) {
	o := d.readPID()
	if o.PID == 0 || !proctree.Alive(o.Pid) {
		return run.Pid{}, false
	}
	here, err := fileIDOf(d.path)
	return o.Pid, err == nil && o.Dir != (fileID{}) && here != o.Dir
}

// checkCopy waits a little for the shim of which this directory is a copy to exit, as it does when its own directory was deleted: then the
// copy is the only record. Otherwise it returns an error: the worker of a copy must not end that shim or its tasks.
func (d *stateDir) checkCopy(ctx context.Context) error {
	for deadline := time.Now().Add(copyTimeout); ; {
		p, isCopy := d.originalPID()
		switch {
		case !isCopy:
			return nil
		case time.Now().After(deadline):
			return muster.Errorf(muster.Conflict,
				"the data dir %s is a copy of one that is in use on this machine, where process %d supervises tasks: a worker cannot run twice. to make the copy another worker, delete the folder shim and the file identity.json in it, and start it with --token",
				d.data, p.PID)
		}
		if backoff.Sleep(ctx, copyPollInterval) != nil {
			return context.Cause(ctx)
		}
	}
}

const (
	copyTimeout      = 5 * time.Second
	copyPollInterval = 100 * time.Millisecond
)

// killAndRemove ends the processes of the shim and its tasks, and removes the directory.
func (d *stateDir) killAndRemove(shim run.Pid, log *slog.Logger) {
	if shim.PID == 0 {
		if p, isCopy := d.originalPID(); isCopy {
			log.Error("directory of a shim is a copy, ignoring it", slog.String("folder", d.path), slog.Int("pid", p.PID))
			return
		}
		shim = d.pid()
	}
	if shim.PID > 0 && shim.PID != os.Getpid() {
		shim.EnvTag = ""
		if err := proctree.KillOrphans(shim); err != nil {
			log.Error("shim survives SIGKILL", slog.Int("pid", shim.PID), slog.Any("error", err))
		}
	}
	proctree.KillRecordedOrphans(d.path, log)
	d.remove(log)
}

func (d *stateDir) remove(log *slog.Logger) {
	if err := os.RemoveAll(d.path); err != nil {
		log.Warn("cannot remove the directory of a shim", slog.String("folder", d.path), slog.Any("error", err))
	}
}

// buildID identifies the build of this program.
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

// Status is the state of a shim's directory for other programs than its worker.
type Status struct {
	PID     int  // of the shim, 0 if it exited
	Orphans int  // recorded tasks of an exited shim that still run
	Stale   bool // neither the shim nor its tasks run: the worker removes the directory
}

// startupGrace is how long a shim may take to record its PID.
const startupGrace = time.Minute

// Inspect returns the states of the shims of a data dir. It connects to none and changes nothing.
func Inspect(data string) ([]Status, error) {
	dirs, err := listStateDirs(data)
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, d := range dirs {
		status := Status{}
		pid := d.pid()
		_, isCopy := d.originalPID()
		switch info, err := os.Stat(d.path); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just exited
		case pid.PID == 0 && err == nil && time.Since(info.ModTime()) < startupGrace:
		case isCopy:
			status.Stale = true // its processes belong to another worker
		case proctree.Alive(pid):
			status.PID = pid.PID
		default:
			for _, p := range proctree.ReadPIDFile(d.path) {
				if proctree.Alive(p) {
					status.Orphans++
				}
			}
			status.Stale = status.Orphans == 0
		}
		list = append(list, status)
	}
	return list, nil
}
