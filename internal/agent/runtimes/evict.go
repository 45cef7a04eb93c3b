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
	minIdle = 10 * time.Minute    // no eviction after a use: the process of the task may not have started
	maxIdle = 60 * 24 * time.Hour // removal after the last use, even within the budget
)

// removedPrefix begins the names of environments that are being removed.
const removedPrefix = ".old-"

// environment is a finished or damaged environment.
type environment struct {
	name string // of the runtime
	dir  string
	rec  record
	used time.Time // zero for one without a record
}

// environments lists all environments, of any version of Muster, least recently used first.
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
	slices.SortFunc(all, func(a, b *environment) int { return a.used.Compare(b.used) })
	return all, nil
}

// removeUnfinished removes unfinished builds and removals of a runtime. The caller holds the exclusive lock.
func (r *Runtimes) removeUnfinished(name string) {
	for _, prefix := range []string{python.UnfinishedPrefix, removedPrefix} {
		leftovers, err := filepath.Glob(r.envPath(prefix + name + "-*"))
		if err != nil {
			continue // bad pattern
		}
		for _, dir := range leftovers {
			if err := os.RemoveAll(dir); err != nil {
				r.cfg.Log.Warn("removing an unfinished runtime failed", slog.String("folder", dir), slog.Any("error", err))
			}
		}
	}
}

// prune removes environments that were unused for maxIdle, then enforces the budget. It logs failures: they do not concern the task
// that requested a runtime.
func (r *Runtimes) prune(ctx context.Context) {
	all, err := r.environments()
	if err != nil {
		r.cfg.Log.Warn("listing runtimes failed", slog.Any("error", err))
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
		r.cfg.Log.Info("runtime removed to free disk space", slog.String("runtime", p.name), slog.String("freed", freed.String()), slog.Time("used", p.used))
		return true
	}
	old := time.Now().Add(-maxIdle)
	all = slices.DeleteFunc(all, func(p *environment) bool { return p.used.Before(old) && evict(p) })
	if size > r.cfg.Budget && r.cleanCache(ctx) { // the cache has hard links to the files of runtimes: removing a runtime alone frees little
		size -= b.remove(r.envs.CacheDir())
	}
	for _, p := range all {
		if size <= r.cfg.Budget {
			return
		}
		evict(p)
	}
	if size > r.cfg.Budget {
		r.cfg.Log.Warn("runtimes exceed --runtime-disk, and all are in use", slog.String("taken", size.String()), slog.String("allowed", r.cfg.Budget.String()))
	}
}

// evict removes an environment unless it is in use, and reports whether it did.
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
		r.cfg.Log.Warn("removing a runtime failed", slog.String("folder", p.dir), slog.Any("error", err))
		return false
	}
	return true
}

// removeEnv removes an environment: it renames it, so that it disappears at once, and then deletes it. The caller holds the exclusive
// lock.
func (r *Runtimes) removeEnv(dir string) error {
	old := r.envPath(removedPrefix + filepath.Base(dir))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	r.envs.Forget(dir)
	return os.RemoveAll(old)
}

// diskUsage returns the usage of all environments, including unfinished ones, and of the cache.
func (r *Runtimes) diskUsage() *diskUsage {
	b := newDiskUsage()
	dirs := []string{r.envs.CacheDir()}
	entries, err := os.ReadDir(r.envPath(""))
	for _, e := range entries {
		dirs = append(dirs, r.envPath(e.Name()))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing was built yet
	}
	for _, dir := range dirs {
		if dir != "" {
			err = errors.Join(err, b.add(dir))
		}
	}
	if err != nil {
		r.cfg.Log.Warn("disk usage of runtimes is incomplete", slog.Any("error", err))
	}
	return b
}

// Disk is the disk usage of runtimes.
type Disk struct {
	Total     muster.Size            // of all runtimes and the cache; shared files count once
	Cached    muster.Size            // part of Total: packages in the cache that no runtime uses
	Exclusive map[string]muster.Size // part of Total, by name: what the removal of this runtime frees
}

// Disk returns the disk usage of runtimes.
func (r *Runtimes) Disk() (Disk, error) {
	all, err := r.environments()
	if err != nil {
		return Disk{}, muster.Errorf(muster.Internal, "list the runtimes of %s: %w", r.cfg.Dir, err)
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
