package runtimes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

const (
	// minIdle is how long nothing is removed that a task was given: its process may not have begun.
	minIdle = 10 * time.Minute
	// maxIdle is when an environment is removed that nobody used.
	maxIdle = 60 * 24 * time.Hour
)

// removedPrefix begins the names of environments that are being removed.
const removedPrefix = ".old-"

// environment is an environment at its place.
type environment struct {
	name string // of the runtime
	dir  string
	rec  record
	used time.Time // zero for one without a record
}

// environments lists those that there are, of whatever version of Muster.
func (r *Runtimes) environments() ([]*environment, error) {
	entries, err := os.ReadDir(r.envPath(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*environment
	for _, e := range entries {
		i := strings.LastIndex(e.Name(), "-")
		if strings.HasPrefix(e.Name(), ".") || i < 0 {
			continue
		}
		p := &environment{name: e.Name()[:i], dir: r.envPath(e.Name())}
		if rec, used, err := readRecord(p.dir); err == nil {
			p.rec, p.used = rec, used
		}
		all = append(all, p)
	}
	sortByUse(all)
	return all, nil
}

// removeUnfinished removes what was not finished, or not removed to its end, of a runtime. Its lock is held alone.
func (r *Runtimes) removeUnfinished(name string) {
	for _, prefix := range []string{python.UnfinishedPrefix, removedPrefix} {
		leftovers, err := filepath.Glob(r.envPath(prefix + name + "-*"))
		if err != nil {
			continue // of a name that is no pattern
		}
		for _, dir := range leftovers {
			if err := os.RemoveAll(dir); err != nil {
				r.cfg.Log.Warn("an unfinished runtime cannot be removed", slog.String("folder", dir), slog.Any("error", err))
			}
		}
	}
}

// prune makes room: nothing is kept that nobody used for long, and what is kept takes no more than the budget. That
// it cannot is no failure of whoever asked for a runtime, so it is only told.
func (r *Runtimes) prune(ctx context.Context) {
	all, err := r.environments()
	if err != nil {
		r.cfg.Log.Warn("runtimes cannot be listed to make room", slog.Any("error", err))
		return
	}
	b := r.diskUsage()
	size := b.total()
	evict := func(p *environment) bool {
		if !r.evict(p) {
			return false
		}
		freed := b.remove(p.dir)
		size -= freed
		r.cfg.Log.Info("a runtime is removed to make room", slog.String("runtime", p.name), slog.String("freed", freed.String()), slog.Time("used", p.used))
		return true
	}
	old := time.Now().Add(-maxIdle)
	all = slices.DeleteFunc(all, func(p *environment) bool { return p.used.Before(old) && evict(p) })
	if size > r.cfg.Budget { // what is kept holds what runtimes have, too: without this, to remove one frees little
		if err := r.envs.CleanCache(ctx); err != nil {
			r.cfg.Log.Warn("kept packages cannot be removed", slog.Any("error", err))
		} else {
			size -= b.remove(r.envs.CacheDir())
		}
	}
	for _, p := range all {
		if size <= r.cfg.Budget {
			return
		}
		evict(p)
	}
	if size > r.cfg.Budget {
		r.cfg.Log.Warn("runtimes take more than --runtime-disk allows, and all are in use", slog.String("taken", size.String()), slog.String("allowed", r.cfg.Budget.String()))
	}
}

// evict removes an environment that nobody uses, and reports whether it did.
func (r *Runtimes) evict(p *environment) bool {
	h, err := r.tryLock(p.name, true)
	if err != nil {
		return false
	}
	defer h.release()
	_, used, err := readRecord(p.dir)
	if err == nil && time.Since(used) < minIdle || len(usersOf(p.dir)) > 0 {
		return false
	}
	if err := r.removeEnv(p.dir); err != nil {
		r.cfg.Log.Warn("a runtime cannot be removed", slog.String("folder", p.dir), slog.Any("error", err))
		return false
	}
	return true
}

// removeEnv removes an environment: at once for all who look, and then from the disk. Its lock is held alone.
func (r *Runtimes) removeEnv(dir string) error {
	old := r.envPath(removedPrefix + filepath.Base(dir))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.checkedUntil, dir)
	r.mu.Unlock()
	return os.RemoveAll(old)
}

// diskUsage are those of all that is there of runtimes, also of what is unfinished, and of kept packages.
func (r *Runtimes) diskUsage() *diskUsage {
	b := newDiskUsage()
	dirs := []string{r.envs.CacheDir()}
	entries, err := os.ReadDir(r.envPath(""))
	for _, e := range entries {
		dirs = append(dirs, r.envPath(e.Name()))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing was made yet
	}
	for _, dir := range dirs {
		if dir != "" {
			err = errors.Join(err, b.add(dir))
		}
	}
	if err != nil {
		r.cfg.Log.Warn("what runtimes take cannot be seen in whole", slog.Any("error", err))
	}
	return b
}

// Disk is what runtimes take of it.
type Disk struct {
	Total     muster.Size            // with the packages that are kept for the next one; what several have counts once
	Cached    muster.Size            // of it, packages that no runtime has
	Exclusive map[string]muster.Size // of it, what only this runtime has, by name: what its removal frees
}

// Disk says what runtimes take of it.
func (r *Runtimes) Disk() (Disk, error) {
	all, err := r.environments()
	if err != nil {
		return Disk{}, muster.Errorf(muster.Internal, "the runtimes of %s cannot be listed: %w", r.cfg.Dir, err)
	}
	b, cache := r.diskUsage(), r.envs.CacheDir()
	dirs := map[string][]string{}
	for _, p := range all {
		dirs[p.name] = append(dirs[p.name], p.dir)
	}
	d := Disk{Total: b.total(), Cached: b.exclusive(cache), Exclusive: map[string]muster.Size{}}
	for name, envDirs := range dirs {
		d.Exclusive[name] = b.exclusive(append(envDirs, cache)...) - d.Cached
	}
	return d, nil
}
