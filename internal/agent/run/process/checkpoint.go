package process

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// How long checkpoints are kept after their last attempt here: whether a task
// will come back cannot be known on a worker.
const (
	checkpointAge   = 7 * 24 * time.Hour
	checkpointMost  = 1000
	checkpointPrune = time.Hour // between two looks at all of them
)

// checkpoints hands out one folder a task of one kind, which its later attempts
// find again.
type checkpoints struct {
	dir     string
	folders folders         // new ones
	keeper  run.Checkpoints // nil for none

	mu     sync.Mutex
	inUse  map[muster.TaskID]*folderUse
	pruned time.Time
}

// folderUse is how a folder is used.
type folderUse struct {
	attempts int
	made     bool // anew: whatever the keeper knows of that path is not of this folder
	kept     bool // by the keeper
}

// take returns the task's folder, made if it is not there.
func (c *checkpoints) take(t muster.TaskID) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path, made := filepath.Join(c.dir, t.String()), false
	if _, err := os.Lstat(path); err != nil {
		if err := c.folders.take(path); err != nil {
			return "", err
		}
		made = true
	}
	if c.inUse == nil {
		c.inUse = map[muster.TaskID]*folderUse{}
	}
	u := c.inUse[t]
	if u == nil {
		u = &folderUse{}
		c.inUse[t] = u
	}
	u.attempts++
	u.made = u.made || made
	return path, nil
}

// keep says that the keeper will have to do with the folder of a task that take
// returned.
func (c *checkpoints) keep(t muster.TaskID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[t]
	if u.made {
		c.keeper.Forget(filepath.Join(c.dir, t.String()))
	}
	u.made, u.kept = false, true
}

// drop says that an attempt of the task has ended. An empty folder is removed at
// once, others when they are old or too many.
func (c *checkpoints) drop(t muster.TaskID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[t]
	if u.attempts--; u.attempts > 0 {
		return
	}
	delete(c.inUse, t)
	path := filepath.Join(c.dir, t.String())
	if c.folders.keep(path) || isEmpty(path) && os.Remove(path) == nil {
		if u.kept {
			c.keeper.Forget(path)
		}
		return
	}
	_ = os.Chtimes(path, now, now) // else it only counts as older than it is
	if now.Sub(c.pruned) >= checkpointPrune {
		c.pruned = now
		c.prune(now)
	}
}

// prune removes the folders that are too old, and the oldest if they are too many.
func (c *checkpoints) prune(now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // the next look may be luckier
	}
	type kept struct {
		path string
		used time.Time
	}
	var all []kept
	for _, e := range entries {
		info, err := e.Info()
		id, idErr := muster.ParseTaskID(e.Name())
		if err != nil || idErr != nil || c.inUse[id] != nil {
			continue
		}
		all = append(all, kept{filepath.Join(c.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(x, y kept) int { return cmp.Compare(y.used.UnixNano(), x.used.UnixNano()) })
	for i, k := range all {
		if i >= checkpointMost || now.Sub(k.used) > checkpointAge {
			_ = run.RemoveAll(k.path) // what stays is tried again at the next look
			if c.keeper != nil {
				c.keeper.Forget(k.path)
			}
		}
	}
}
