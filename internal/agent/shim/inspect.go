package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// Status is the folder of a shim, as it looks to who is not its worker.
type Status struct {
	Dir     string
	PID     int  // of the shim, 0 if it is gone
	Orphans int  // recorded tasks of a shim that is gone of which something goes on
	Stale   bool // neither the shim nor anything of its tasks is there: nobody misses the folder
}

// startupGrace is how long a shim may take to note who it is.
const startupGrace = time.Minute

// Inspect tells of the shims of a data dir. It speaks with none and changes nothing.
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
			continue // it has just ended
		case pid.PID == 0 && err == nil && time.Since(info.ModTime()) < startupGrace:
		case d.isCopy():
			status.Stale = true // what it names is another worker's
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

// Remove removes the home of a shim that was Dead. Nobody else may use the data dir
// meanwhile.
func (s *Status) Remove(data string) error {
	if !s.Stale || filepath.Dir(s.Dir) != shimsDir(data) {
		return fs.ErrInvalid
	}
	return os.RemoveAll(s.Dir)
}
