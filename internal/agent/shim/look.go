package shim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

// Home is the folder of a shim, as it looks to who is not its worker.
type Home struct {
	Dir  string
	PID  int  // of the shim, 0 if it is gone
	Left int  // recorded tasks of a shim that is gone of which something goes on
	Dead bool // neither the shim nor anything of its tasks is there: nobody misses the folder
}

// born is how long a shim may take to note who it is.
const born = time.Minute

// Look tells of the shims of a data dir. It speaks with none and changes nothing.
func Look(data string) ([]Home, error) {
	homes, err := homesIn(data)
	if err != nil {
		return nil, err
	}
	var list []Home
	for _, h := range homes {
		found := Home{Dir: h.dir}
		owner := h.owner()
		switch info, err := os.Stat(h.dir); {
		case errors.Is(err, fs.ErrNotExist):
			continue // it has just ended
		case owner.PID == 0 && err == nil && time.Since(info.ModTime()) < born:
		case h.isCopy():
			found.Dead = true // what it names is another worker's
		case kin.Lives(owner):
			found.PID = owner.PID
		default:
			for _, p := range kin.Recorded(h.dir) {
				if kin.Lives(p) {
					found.Left++
				}
			}
			found.Dead = found.Left == 0
		}
		list = append(list, found)
	}
	return list, nil
}

// Remove removes the home of a shim that was Dead. Nobody else may use the data dir
// meanwhile.
func (h *Home) Remove(data string) error {
	if !h.Dead || filepath.Dir(h.Dir) != shims(data) {
		return fs.ErrInvalid
	}
	return os.RemoveAll(h.Dir)
}
