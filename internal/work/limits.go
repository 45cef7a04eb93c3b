package work

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/warm"
)

// limits makes what holds tasks. all is the memory that they have together.
func (w *Worker) limits(all muster.Size) (*limit.Limits, error) {
	cfg := w.cfg.Limits
	cfg.Memory, cfg.Log = all, w.log
	return limit.New(cfg)
}

// tasksPath returns the PATH of tasks if their user does not come to all of the
// worker's, and else "".
func tasksPath(reach func(dir string) bool) string {
	if reach == nil {
		return ""
	}
	dirs := filepath.SplitList(os.Getenv("PATH"))
	return strings.Join(slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) || !reach(dir) }), string(filepath.ListSeparator))
}

// sweep ends what attempts of earlier lives left, but for those that are held and for hosts of models.
func sweep(l *limit.Limits, held []run.Held, hosts []warm.Leftover) error {
	var keep []*run.Confine
	for i := range held {
		if c := held[i].Start.Confine; c != nil {
			keep = append(keep, c)
		}
	}
	for i := range hosts {
		if c := hosts[i].Confine; c != nil {
			keep = append(keep, c)
		}
	}
	return l.Sweep(keep...)
}
