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

// Limits of the checkpoints of earlier attempts. A worker cannot know whether the task will run here again.
const (
	maxCheckpointAge = 7 * 24 * time.Hour
	maxCheckpoints   = 1000
	pruneInterval    = time.Hour
)

// checkpointPrefix begins the names of checkpoint folders. Older workers used the job's number instead, which is not unique:
// another server, or this one after a restored backup, gives it to other jobs.
const checkpointPrefix = "job-"

// checkpointName is the name of the folder of a task.
func checkpointName(t *run.Task) string {
	if t.Job == "" {
		return t.Attempt.Task.String()
	}
	return checkpointPrefix + t.Job + "." + strconv.Itoa(t.Attempt.Task.Num)
}

// checkpointDirs keeps one folder for each task of a kind. Later attempts of the task get the same folder.
type checkpointDirs struct {
	dir   string
	pool  folderPool      // of empty folders
	store CheckpointStore // may be nil

	mu     sync.Mutex
	inUse  map[string]*folderUse
	pruned time.Time
}

// folderUse is the use of one folder by running attempts.
type folderUse struct {
	attempts int
	created  bool // what the store knows of that path is about a removed folder
	stored   bool // in the store
}

// acquire returns the task's folder and creates it if it does not exist.
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

// markStored records that the store uses the folder that acquire returned.
func (c *checkpointDirs) markStored(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.inUse[name]
	if u.created {
		c.store.Forget(filepath.Join(c.dir, name))
	}
	u.created, u.stored = false, true
}

// release ends the use of a folder by one attempt. It removes an empty folder and that of a task that is done at once; prune
// removes the others.
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
	_ = os.Chtimes(path, now, now) // after an error the folder only counts as older
	if now.Sub(c.pruned) >= pruneInterval {
		c.pruned = now
		c.prune(now)
	}
}

// prune removes folders over maxCheckpointAge, the oldest over maxCheckpoints, and those of older workers.
func (c *checkpointDirs) prune(now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // retried after pruneInterval
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
			continue // a file of the store
		}
		all = append(all, oldDir{filepath.Join(c.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(x, y oldDir) int { return y.used.Compare(x.used) })
	for i, k := range all {
		if i >= maxCheckpoints || k.used.IsZero() || now.Sub(k.used) > maxCheckpointAge {
			_ = run.RemoveAll(k.path) // retried after pruneInterval
			if c.store != nil {
				c.store.Forget(k.path)
			}
		}
	}
}
