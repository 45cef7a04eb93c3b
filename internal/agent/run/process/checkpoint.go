package process

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/progress"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Limits of the last upload of a checkpoint: less than the server waits for the report of a stopped task.
const (
	saveTimeout          = 4 * time.Minute
	saveTimeoutShutdown  = time.Minute
	saveTimeoutCancelled = 20 * time.Second

	saveStepDelay = 2 * time.Second // an upload that takes longer is reported as a step
)

// savesCheckpoint reports whether the task's checkpoint is uploaded to the server.
func (a *Attempt) savesCheckpoint() bool {
	return a.Task.Spec.Checkpoint != nil && a.executor.deps.Checkpoints != nil && a.checkpoint != ""
}

// loadCheckpoint fetches the checkpoint of the previous attempt into the checkpoint folder.
func (a *Attempt) loadCheckpoint(ctx context.Context) error {
	if a.savesCheckpoint() {
		a.executor.checkpoints.markStored(checkpointName(a.Task))
		if a.Task.Checkpoint != "" {
			a.SetStep("fetching the checkpoint")
			if err := a.executor.deps.Checkpoints.Load(ctx, a.Task, a.checkpoint); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkCheckpoint creates the spec's checkpoint path in the task's folder, as a symbolic link to $MUSTER_CHECKPOINT.
func (a *Attempt) linkCheckpoint(context.Context) error {
	c := a.Task.Spec.Checkpoint
	if c == nil || c.Path == "" {
		return nil
	}
	name := path.Clean(c.Path)
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." {
		return run.Failf(muster.TaskInvalid, "checkpoint folder %q is outside the task's folder", name)
	}
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return run.Failf(muster.TaskInvalid, "create the parent of checkpoint folder %s: %w", name, err)
	}
	if _, err := root.Lstat(name); err == nil {
		if err := root.Remove(name); err != nil { // Remove only succeeds for an empty folder or a link
			return run.Failf(muster.TaskInvalid, "checkpoint folder %s already exists among the task's files: exclude it with .musterignore, or choose another path", name)
		}
	}
	if err := root.Symlink(a.paths().checkpoint, name); err != nil {
		return run.Failf(muster.WorkerInternal, "create checkpoint folder %s: %w", name, err)
	}
	return nil
}

func (a *Attempt) startSaving() {
	if a.savesCheckpoint() {
		a.executor.checkpoints.markStored(checkpointName(a.Task))
		a.stopSave = a.executor.deps.Checkpoints.Watch(a.Task, a.checkpoint, a.LogLine, func() { a.log.record(tasklog.Progress, []byte(progress.CheckpointPoint)) })
	}
}

// stopSaving stops the uploads, after a last one if the task ended without success.
func (a *Attempt) stopSaving() {
	if a.stopSave == nil {
		return
	}
	timeout := a.lastSaveTimeout()
	stepTimer := time.AfterFunc(saveStepDelay, func() { a.SetStep("saving the checkpoint") })
	a.stopSave(timeout)
	a.stopSave = nil
	if !stepTimer.Stop() {
		a.SetStep("")
	}
}

// lastSaveTimeout returns how long the last upload may take, 0 for no upload.
func (a *Attempt) lastSaveTimeout() time.Duration {
	if a.exit == nil {
		return 0 // the task keeps running
	}
	cause := a.stopped()
	switch {
	case cause == nil && a.exit.Code == 0:
		return 0
	case cause == nil:
		return saveTimeout
	case cause.Reason == muster.WorkerLost:
		return 0 // the server has given the attempt up
	case cause.Reason == muster.WorkerShutdown:
		return saveTimeoutShutdown
	case cause.Outcome == muster.AttemptCancelled:
		return saveTimeoutCancelled
	}
	return saveTimeout
}

// Limits of the checkpoints of earlier attempts. A worker cannot know whether the task will run here again.
const (
	maxCheckpointAge = 7 * 24 * time.Hour
	maxCheckpoints   = 1000
	pruneInterval    = time.Hour
)

// checkpointPrefix begins the names of checkpoint folders.
const checkpointPrefix = "job-"

// checkpointName is the name of the folder of a task. The job's number is not unique: another server, or this one after a restored
// backup, gives it to other jobs.
func checkpointName(t *run.Task) string {
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

// acquire returns the task's folder and creates it if it does not exist. A fresh one replaces what an earlier attempt left, and fails
// while another attempt uses it.
func (c *checkpointDirs) acquire(name string, fresh bool) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path, created := filepath.Join(c.dir, name), false
	if fresh {
		if c.inUse[name] != nil {
			return "", errors.New("another attempt of the task still uses its checkpoint folder")
		}
		if err := run.RemoveAll(path); err != nil {
			return "", err
		}
	}
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

// prune removes folders over maxCheckpointAge, and the oldest over maxCheckpoints.
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
		name, ok := strings.CutPrefix(e.Name(), checkpointPrefix)
		_, num, _ := strings.Cut(name, ".")
		if _, err := strconv.ParseUint(num, 10, 32); !ok || err != nil {
			continue // a file of the store
		}
		all = append(all, oldDir{filepath.Join(c.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(all, func(x, y oldDir) int { return y.used.Compare(x.used) })
	for i, k := range all {
		if i >= maxCheckpoints || now.Sub(k.used) > maxCheckpointAge {
			_ = run.RemoveAll(k.path) // retried after pruneInterval
			if c.store != nil {
				c.store.Forget(k.path)
			}
		}
	}
}
