package python

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// minIdle is how long an environment is not evicted after a use: the process of the task may not have started.
const minIdle = 10 * time.Minute

// maxIdleLocal is Config.MaxIdle for environments with packages of a task's files: each change of a file makes another one.
const maxIdleLocal = 24 * time.Hour

// tempPrefix begins the names of the folders of builds and removals. The name of the environment, "-" and another word follow.
const tempPrefix = ".build-"

// List returns all environments, least recently used first.
func (e *Envs) List() ([]*Env, error) {
	entries, err := os.ReadDir(e.Path(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*Env
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		env, _ := e.Load(entry.Name()) // a damaged one has no record
		all = append(all, env)
	}
	slices.SortFunc(all, func(a, b *Env) int { return a.Used.Compare(b.Used) })
	return all, nil
}

// sweep removes the remains of killed builds and removals. The caller holds the exclusive lock of the environment held.
func (e *Envs) sweep(held string) {
	remains, _ := filepath.Glob(e.Path(tempPrefix + "*")) // the pattern is valid
	for _, dir := range remains {
		name := strings.TrimPrefix(filepath.Base(dir), tempPrefix)
		name = name[:max(0, strings.LastIndex(name, "-"))]
		if name == held {
			e.removeRemains(dir)
		} else if l, err := e.tryLock(name, true); err == nil {
			e.removeRemains(dir)
			l.remove()
		}
	}
}

// removeRemains removes a folder of a build or removal that did not finish.
func (e *Envs) removeRemains(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		e.log.Warn("removing an unfinished Python environment failed", slog.String("folder", dir), slog.Any("error", err))
	}
}

// prune removes environments that were unused for too long, then enforces the budget. It logs failures: they do not concern the task
// that requested an environment.
func (e *Envs) prune(ctx context.Context) {
	all, err := e.List()
	if err != nil {
		e.log.Warn("listing Python environments failed", slog.Any("error", err))
		return
	}
	all = slices.DeleteFunc(all, func(env *Env) bool {
		idle := e.cfg.MaxIdle
		if env.Local {
			idle = min(idle, maxIdleLocal)
		}
		return time.Since(env.Used) > idle && e.evict(env)
	})
	total := func() muster.Size { return e.Usage(func(name string) string { return name }).Total }
	if e.cfg.Budget == 0 || total() <= e.cfg.Budget {
		return
	}
	e.cleanCache(ctx) // it has hard links to the files of environments: removing an environment alone frees little
	size := total()
	for _, env := range all {
		if size <= e.cfg.Budget {
			return
		}
		if e.evict(env) {
			size = total()
		}
	}
	if size > e.cfg.Budget {
		e.log.Warn("Python environments exceed their disk space, and all are in use", slog.String("taken", size.String()), slog.String("allowed", e.cfg.Budget.String()))
	}
}

// evict removes an environment unless it is in use, and reports whether it did.
func (e *Envs) evict(env *Env) bool {
	l, err := e.tryLock(env.Name, true)
	if err != nil {
		return false
	}
	defer l.remove()
	now, err := e.Load(env.Name)
	if err == nil && time.Since(now.Used) < minIdle || len(usersOf(e.Path(env.Name))) > 0 {
		return false
	}
	if err := e.remove(env.Name); err != nil {
		e.log.Warn("removing a Python environment failed", slog.String("name", env.Name), slog.Any("error", err))
		return false
	}
	e.log.Info("Python environment removed to free disk space", slog.String("name", env.Name), slog.String("size", env.Size.String()), slog.Time("used", env.Used))
	return true
}

// Remove removes an environment and the remains of its builds. The error has code Conflict if a process uses it.
func (e *Envs) Remove(ctx context.Context, r Request, observer run.Observer) error {
	l, err := e.lock(ctx, &r, true, observer)
	if err != nil {
		return err
	}
	defer l.remove()
	e.sweep(r.Name)
	if pids := usersOf(e.Path(r.Name)); len(pids) > 0 {
		return muster.Errorf(muster.Conflict, "%s is in use by %s: wait until its tasks end, or cancel them", r.Title, formatPIDs(pids))
	}
	if err := e.remove(r.Name); err != nil {
		return muster.Errorf(muster.Internal, "remove %s: %w", r.Title, err)
	}
	return nil
}

// remove removes an environment, if it exists: it renames it, so that it disappears at once, and then deletes it. The caller
// holds the exclusive lock.
func (e *Envs) remove(name string) error {
	old := e.Path(tempPrefix + name + "-old")
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(e.Path(name), old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(old)
}

// formatPIDs names the first process and the number of others.
func formatPIDs(pids []int) string {
	text := "process " + strconv.Itoa(pids[0])
	if more := len(pids) - 1; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// CacheDirs returns the folders of uv's caches, without one that the operator set, which other programs may use.
func (e *Envs) CacheDirs() []string {
	dirs, _ := filepath.Glob(filepath.Join(e.tool.projectCaches(), "*")) // the pattern is valid
	if os.Getenv("UV_CACHE_DIR") == "" {
		dirs = append(dirs, e.tool.cacheDir())
	}
	return dirs
}

// CleanCache empties all CacheDirs. It waits for the processes that use them.
func (e *Envs) CleanCache(ctx context.Context) error { return e.cleanCaches(ctx, e.CacheDirs()...) }

func (e *Envs) cleanCaches(ctx context.Context, dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // do not fetch uv only to empty a missing cache
		}
		uv, err := e.tool.find(ctx, run.Observer{Step: func(string) {}, LogLine: func(string) {}})
		if err != nil {
			return err
		}
		errs = append(errs, e.tool.uv(ctx, uv, func(string) {}, "cache", "clean", "--cache-dir", dir))
	}
	return errors.Join(errs...)
}

func (e *Envs) cleanCache(ctx context.Context) { e.logCleaning(e.CleanCache(ctx)) }

// cleanCacheOf empties the cache of a spec, unless it is the operator's.
func (e *Envs) cleanCacheOf(ctx context.Context, s *Spec) {
	dir := e.tool.cacheOf(s)
	if dir == "" && os.Getenv("UV_CACHE_DIR") == "" {
		dir = e.tool.cacheDir()
	}
	if dir != "" {
		e.logCleaning(e.cleanCaches(ctx, dir))
	}
}

func (e *Envs) logCleaning(err error) {
	if err != nil {
		e.log.Warn("removing cached Python packages failed", slog.Any("error", err))
	}
}

// usersOf lists the processes of this machine that use an environment: with a path below dir in their command line or environment, such
// as the PATH that activates it, or, on Linux, with a mapped file below it, or in a container that has it as a mount.
func usersOf(dir string) (pids []int) {
	prefixes := []string{dir + "/"}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil && resolved != dir {
		prefixes = append(prefixes, resolved+"/")
	}
	all, _ := process.Processes() // none if they are unknown
	for _, p := range all {
		line, _ := p.Cmdline() // "" if it has exited, or belongs to another user
		environ, _ := p.Environ()
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Pid))
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.Pid))
		text := line + "\n" + strings.Join(environ, "\n") + "\n" + string(maps)
		mounted := bytes.Contains(mounts, []byte("/"+filepath.Base(dir)+" /muster/"+envFolder+" ")) // its own name is a hash
		if mounted || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.Contains(text, prefix) }) {
			pids = append(pids, int(p.Pid))
		}
	}
	return pids
}

// Usage is the disk usage of environments and uv's caches. Files that they share by hard links count once.
type Usage struct {
	Total  muster.Size
	Cached muster.Size            // part of Total: files that are only in the cache
	Own    map[string]muster.Size // part of Total, by group of environments: files that no other group has
}

// The owners of files that do not belong to one group.
const (
	ownerCache  = ""
	ownerShared = "/"
)

// Usage returns the disk usage. group returns the group of an environment.
func (e *Envs) Usage(group func(name string) string) Usage {
	files := diskFiles{}
	var err error
	for _, cache := range e.CacheDirs() {
		err = errors.Join(err, files.add(cache, ownerCache))
	}
	entries, readErr := os.ReadDir(e.Path(""))
	if !errors.Is(readErr, fs.ErrNotExist) { // nothing was built yet
		err = errors.Join(err, readErr)
	}
	for _, entry := range entries {
		owner := ownerShared
		if !strings.HasPrefix(entry.Name(), tempPrefix) {
			owner = group(entry.Name())
		}
		err = errors.Join(err, files.add(e.Path(entry.Name()), owner))
	}
	if err != nil {
		e.log.Warn("disk usage of Python environments is incomplete", slog.Any("error", err))
	}
	u := Usage{Own: map[string]muster.Size{}}
	for _, f := range files {
		u.Total += f.size
		u.Own[f.owner] += f.size
	}
	u.Cached = u.Own[ownerCache]
	delete(u.Own, ownerCache)
	delete(u.Own, ownerShared)
	return u
}

// diskFiles are the files of some folders by identity.
type diskFiles map[any]diskFile

type diskFile struct {
	size  muster.Size
	owner string
}

// add adds the files of an owner, after those of the cache. It skips those that are removed meanwhile.
func (files diskFiles) add(dir, owner string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || info.IsDir() {
			return err
		}
		id, size := fileUsage(path, info)
		f, known := files[id]
		switch {
		case !known || f.owner == ownerCache:
			files[id] = diskFile{size, owner}
		case f.owner != owner:
			files[id] = diskFile{size, ownerShared}
		}
		return nil
	})
}

func diskSize(dir string) (size muster.Size, err error) {
	files := diskFiles{}
	err = files.add(dir, dir)
	for _, f := range files {
		size += f.size
	}
	return size, err
}
