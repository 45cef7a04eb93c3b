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
	// justUsed is how long nothing is removed that a task was given: its process may not have begun.
	justUsed = 10 * time.Minute
	// unusedAge is when an environment is removed that nobody used.
	unusedAge = 60 * 24 * time.Hour
)

// removed begins the names of environments that are being removed.
const removed = ".old-"

// placed is an environment at its place.
type placed struct {
	name string // of the runtime
	dir  string
	rec  record
	used time.Time // zero for one without a record
}

// environments lists those that there are, of whatever version of Muster.
func (r *Runtimes) environments() ([]*placed, error) {
	entries, err := os.ReadDir(r.env(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*placed
	for _, e := range entries {
		i := strings.LastIndex(e.Name(), "-")
		if strings.HasPrefix(e.Name(), ".") || i < 0 {
			continue
		}
		p := &placed{name: e.Name()[:i], dir: r.env(e.Name())}
		if rec, used, err := readRecord(p.dir); err == nil {
			p.rec, p.used = rec, used
		}
		all = append(all, p)
	}
	sortedByUse(all)
	return all, nil
}

// clear removes what was not finished, or not removed to its end, of a runtime. Its lock is held alone.
func (r *Runtimes) clear(name string) {
	for _, begin := range []string{python.Unfinished, removed} {
		left, err := filepath.Glob(r.env(begin + name + "-*"))
		if err != nil {
			continue // of a name that is no pattern
		}
		for _, dir := range left {
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
	b := r.books()
	size := b.taken()
	spare := func(p *placed) bool {
		if !r.spare(p) {
			return false
		}
		freed := b.drop(p.dir)
		size -= freed
		r.cfg.Log.Info("a runtime is removed to make room", slog.String("runtime", p.name), slog.String("freed", freed.String()), slog.Time("used", p.used))
		return true
	}
	old := time.Now().Add(-unusedAge)
	all = slices.DeleteFunc(all, func(p *placed) bool { return p.used.Before(old) && spare(p) })
	if size > r.cfg.Budget { // what is kept holds what runtimes have, too: without this, to remove one frees little
		if err := r.envs.Forget(ctx); err != nil {
			r.cfg.Log.Warn("kept packages cannot be removed", slog.Any("error", err))
		} else {
			size -= b.drop(r.envs.Cache())
		}
	}
	for _, p := range all {
		if size <= r.cfg.Budget {
			return
		}
		spare(p)
	}
	if size > r.cfg.Budget {
		r.cfg.Log.Warn("runtimes take more than --runtime-disk allows, and all are in use", slog.String("taken", size.String()), slog.String("allowed", r.cfg.Budget.String()))
	}
}

// spare removes an environment that nobody uses, and reports whether it did.
func (r *Runtimes) spare(p *placed) bool {
	h, err := r.try(p.name, true)
	if err != nil {
		return false
	}
	defer h.release()
	_, used, err := readRecord(p.dir)
	if err == nil && time.Since(used) < justUsed || len(users(p.dir)) > 0 {
		return false
	}
	if err := r.discard(p.dir); err != nil {
		r.cfg.Log.Warn("a runtime cannot be removed", slog.String("folder", p.dir), slog.Any("error", err))
		return false
	}
	return true
}

// discard removes an environment: at once for all who look, and then from the disk. Its lock is held alone.
func (r *Runtimes) discard(dir string) error {
	old := r.env(removed + filepath.Base(dir))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.seen, dir)
	r.mu.Unlock()
	return os.RemoveAll(old)
}

// books are those of all that is there of runtimes, also of what is unfinished, and of kept packages.
func (r *Runtimes) books() *books {
	b := newBooks()
	dirs := []string{r.envs.Cache()}
	entries, err := os.ReadDir(r.env(""))
	for _, e := range entries {
		dirs = append(dirs, r.env(e.Name()))
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
	Taken muster.Size            // with the packages that are kept for the next one; what several have counts once
	Kept  muster.Size            // of it, packages that no runtime has
	Own   map[string]muster.Size // of it, what only this runtime has, by name: what its removal frees
}

// Disk says what runtimes take of it.
func (r *Runtimes) Disk() (Disk, error) {
	all, err := r.environments()
	if err != nil {
		return Disk{}, muster.Errorf(muster.Internal, "the runtimes of %s cannot be listed: %w", r.cfg.Dir, err)
	}
	b, cache := r.books(), r.envs.Cache()
	dirs := map[string][]string{}
	for _, p := range all {
		dirs[p.name] = append(dirs[p.name], p.dir)
	}
	d := Disk{Taken: b.taken(), Kept: b.alone(cache), Own: map[string]muster.Size{}}
	for name, own := range dirs {
		d.Own[name] = b.alone(append(own, cache)...) - d.Kept
	}
	return d, nil
}
