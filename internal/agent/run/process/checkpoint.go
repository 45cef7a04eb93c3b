package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// checkpointPrefix is what the names of checkpoint folders begin with. Others are of older workers, which went by the number
// of the job alone: another server, or this one after a restored backup, gives that to other jobs.
const checkpointPrefix = "job-"

// checkpointName is the name of the folder of a task.
func checkpointName(t *run.Task) string {
	if t.Job == "" {
		return t.Attempt.Task.String()
	}
	return checkpointPrefix + t.Job + "." + strconv.Itoa(t.Attempt.Task.Num)
}

// checkpoints hands out one folder a task of one kind, which its later attempts
// find again, by its name.
type checkpoints struct {
	dir     string
	folders folders         // new ones
	keeper  run.Checkpoints // nil for none

	mu     sync.Mutex
	inUse  map[string]*folderUse
	pruned time.Time
}

// folderUse is how a folder is used.
type folderUse struct {
	attempts int
	made     bool // anew: whatever the keeper knows of that path is not of this folder
	kept     bool // by the keeper
}

// take returns the task's folder, made if it is not there.
func (c *checkpoints) take(name string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path, made := filepath.Join(c.dir, name), false
	if _, err := os.Lstat(path); err != nil {
		if err := c.folders.take(path); err != nil {
			return "", err
		}
		made = true
	}
	if c.inUse == nil {
		c.inUse = map[string]*folderUse{}
	}
	u := c.inUse[name]
	if u == nil {
		u = &folderUse{}
		c.inUse[name] = u
	}
	u.attempts++
	u.made = u.made || made
	return path, nil
}

// keep says that the keeper will have to do with the folder of a task that take
// returned.
func (c *checkpoints) keep(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[name]
	if u.made {
		c.keeper.Forget(filepath.Join(c.dir, name))
	}
	u.made, u.kept = false, true
}

// drop says that an attempt of the task has ended. An empty folder, and that of a task that is done, is removed at
// once, others when they are old or too many.
func (c *checkpoints) drop(name string, done bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[name]
	if u.attempts--; u.attempts > 0 {
		return
	}
	delete(c.inUse, name)
	path := filepath.Join(c.dir, name)
	if c.folders.keep(path) || isEmpty(path) && os.Remove(path) == nil {
		if u.kept {
			c.keeper.Forget(path)
		}
		return
	}
	if done && run.RemoveAll(path) == nil {
		if c.keeper != nil {
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

// prune removes the folders that are too old, the oldest if they are too many, and those of older workers.
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
		if err != nil || !e.IsDir() || c.inUse[e.Name()] != nil {
			continue
		}
		if _, err := muster.ParseTaskID(e.Name()); err == nil {
			all = append(all, kept{path: filepath.Join(c.dir, e.Name())})
			continue
		}
		uid, num, ok := strings.Cut(strings.TrimPrefix(e.Name(), checkpointPrefix), ".")
		if _, err := strconv.ParseUint(num, 10, 32); !ok || err != nil || uid == e.Name() || !strings.HasPrefix(e.Name(), checkpointPrefix) {
			continue // the keeper's
		}
		all = append(all, kept{filepath.Join(c.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(x, y kept) int { return y.used.Compare(x.used) })
	for i, k := range all {
		if i >= checkpointMost || k.used.IsZero() || now.Sub(k.used) > checkpointAge {
			_ = run.RemoveAll(k.path) // what stays is tried again at the next look
			if c.keeper != nil {
				c.keeper.Forget(k.path)
			}
		}
	}
}
