package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// Status is the state of a shim's directory for other programs than its worker.
type Status struct {
	Dir     string
	PID     int  // of the shim, 0 if it exited
	Orphans int  // recorded tasks of an exited shim that still run
	Stale   bool // neither the shim nor its tasks run: the directory can be removed
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
		status := Status{Dir: d.path}
		pid := d.pid()
		switch info, err := os.Stat(d.path); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just exited
		case pid.PID == 0 && err == nil && time.Since(info.ModTime()) < startupGrace:
		case d.isCopy():
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

// Remove removes the directory of a stale shim. No other program may use the data dir meanwhile.
func (s *Status) Remove(data string) error {
	if !s.Stale || filepath.Dir(s.Dir) != shimsDir(data) {
		return fs.ErrInvalid
	}
	return os.RemoveAll(s.Dir)
}
