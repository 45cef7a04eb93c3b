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
	maxCheckpointAge = 7 * 24 * time.Hour
	maxCheckpoints   = 1000
	pruneInterval    = time.Hour // between two looks at all of them
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

// checkpointDirs hands out one folder a task of one kind, which its later attempts
// find again, by its name.
type checkpointDirs struct {
	dir   string
	pool  folderPool          // new ones
	store run.CheckpointStore // nil for none

	mu     sync.Mutex
	inUse  map[string]*folderUse
	pruned time.Time
}

// folderUse is how a folder is used.
type folderUse struct {
	attempts int
	created  bool // anew: whatever the keeper knows of that path is not of this folder
	stored   bool // by the keeper
}

// acquire returns the task's folder, made if it is not there.
func (c *checkpointDirs) acquire(name string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path, created := filepath.Join(c.dir, name), false
	if _, err := os.Lstat(path); err != nil {
		if err := c.pool.acquire(path); err != nil {
			return "", err
		}
		created = true
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
	u.created = u.created || created
	return path, nil
}

// markStored says that the keeper will have to do with the folder of a task that take
// returned.
func (c *checkpointDirs) markStored(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[name]
	if u.created {
		c.store.Forget(filepath.Join(c.dir, name))
	}
	u.created, u.stored = false, true
}

// release says that an attempt of the task has ended. An empty folder, and that of a task that is done, is removed at
// once, others when they are old or too many.
func (c *checkpointDirs) release(name string, done bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[name]
	if u.attempts--; u.attempts > 0 {
		return
	}
	delete(c.inUse, name)
	path := filepath.Join(c.dir, name)
	if c.pool.recycle(path) || isEmpty(path) && os.Remove(path) == nil {
		if u.stored {
			c.store.Forget(path)
		}
		return
	}
	if done && run.RemoveAll(path) == nil {
		if c.store != nil {
			c.store.Forget(path)
		}
		return
	}
	_ = os.Chtimes(path, now, now) // else it only counts as older than it is
	if now.Sub(c.pruned) >= pruneInterval {
		c.pruned = now
		c.prune(now)
	}
}

// prune removes the folders that are too old, the oldest if they are too many, and those of older workers.
func (c *checkpointDirs) prune(now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // the next look may be luckier
	}
	type oldDir struct {
		path string
		used time.Time
	}
	var all []oldDir
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || c.inUse[e.Name()] != nil {
			continue
		}
		if _, err := muster.ParseTaskID(e.Name()); err == nil {
			all = append(all, oldDir{path: filepath.Join(c.dir, e.Name())})
			continue
		}
		uid, num, ok := strings.Cut(strings.TrimPrefix(e.Name(), checkpointPrefix), ".")
		if _, err := strconv.ParseUint(num, 10, 32); !ok || err != nil || uid == e.Name() || !strings.HasPrefix(e.Name(), checkpointPrefix) {
			continue // the keeper's
		}
		all = append(all, oldDir{filepath.Join(c.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(x, y oldDir) int { return y.used.Compare(x.used) })
	for i, k := range all {
		if i >= maxCheckpoints || k.used.IsZero() || now.Sub(k.used) > maxCheckpointAge {
			_ = run.RemoveAll(k.path) // what stays is tried again at the next look
			if c.store != nil {
				c.store.Forget(k.path)
			}
		}
	}
}
