package kinds

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// maxIdle is how long the downloads of a project stay without a task that uses them.
const maxIdle = 60 * 24 * time.Hour

// evictedPrefix begins the names of folders that are being removed.
const evictedPrefix = ".evicted-"

// earlierPrefix begins the names of folders with what an earlier version downloaded for all projects. No task has access to them.
const earlierPrefix = "earlier-"

// modelFolders are the folders of models on a worker: one of the owner, which tasks read, and one for each project, with what its tasks
// download. What is used least is removed from them if they take more than limit, or if the disk is nearly full: see enforceLimit. A folder that no task of the worker used for maxIdle is evicted: the time of its last use is its modification time. A task that an earlier process of the worker started counts from its start.
type modelFolders struct {
	owner    string
	projects string
	open     bool               // users of images write to the folders of projects
	limit    muster.Size        // of what tasks downloaded; 0 for none
	missing  func() muster.Size // on the disk
	log      *slog.Logger

	enforcing sync.Mutex // held by enforceLimit

	mu    sync.Mutex
	users map[string]int // tasks by folder
}

func newModelFolders(cfg *Config) *modelFolders {
	m := &modelFolders{
		owner: filepath.Join(cfg.Deps.Dir, "models"), projects: filepath.Join(cfg.Deps.Dir, "cache", "models"),
		open: cfg.Deps.Containers != nil && isPrivate(cfg.Deps.Dir), limit: cfg.ModelDisk, missing: cfg.MissingDisk, log: cfg.Deps.Log, users: map[string]int{},
	}
	if m.missing == nil {
		m.missing = func() muster.Size { return 0 }
	}
	m.migrate()
	m.evict()
	m.enforceLimit()
	return m
}

// migrate takes from the owner's folder what an earlier version downloaded there, for all projects. That may have been changed by any of
// them, or be private to one: no task gets it. It is evicted later.
func (m *modelFolders) migrate() {
	if info, err := os.Stat(m.owner); err == nil && info.Mode().Perm()&0o002 != 0 {
		if err := os.Chmod(m.owner, info.Mode().Perm()&^0o002); err != nil {
			m.log.Warn("cannot close the folder of models to tasks", slog.String("folder", m.owner), slog.Any("error", err))
		}
	}
	var into string
	for _, name := range []string{"hf", "datasets", ".in-use"} {
		old := filepath.Join(m.owner, name)
		if _, err := os.Lstat(old); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := os.MkdirAll(m.projects, 0o700)
		if err == nil && into == "" {
			into, err = os.MkdirTemp(m.projects, earlierPrefix)
		}
		if err == nil {
			err = os.Rename(old, filepath.Join(into, name))
		}
		if err != nil {
			m.log.Error("tasks of all projects can read what an earlier version downloaded: remove it", slog.String("folder", old), slog.Any("error", err))
			continue
		}
		m.log.Warn("tasks do not use what an earlier version downloaded for all projects: it is removed later", slog.String("folder", filepath.Join(into, name)))
	}
}

// use returns the folder of a project's downloads, which it creates if necessary. It is not evicted before release is called.
func (m *modelFolders) use(project string) (dir string, release func(), err error) {
	m.evict()
	m.enforceLimit()
	dir = filepath.Join(m.projects, run.ProjectFolder(project))
	m.mu.Lock()
	defer m.mu.Unlock()
	err = os.MkdirAll(dir, 0o700)
	if err == nil && m.open {
		err = os.Chmod(dir, 0o777) //nolint:gosec // the data dir is closed to other users
	}
	if err == nil {
		err = touch(dir)
	}
	if err != nil {
		return "", nil, run.Failf(muster.WorkerInternal, "create the project's folder of models: %w", err)
	}
	m.users[dir]++
	return dir, sync.OnceFunc(func() {
		m.release(dir)
		m.enforceLimit()
	}), nil
}

func (m *modelFolders) release(dir string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users[dir]--; m.users[dir] == 0 {
		delete(m.users, dir)
	}
	if err := touch(dir); err != nil {
		m.log.Warn("cannot note the use of a project's folder of models", slog.String("folder", dir), slog.Any("error", err))
	}
}

// ownerFolder returns the owner's folder, which it creates if necessary.
func (m *modelFolders) ownerFolder() (string, error) {
	if err := os.MkdirAll(m.owner, 0o755); err != nil { //nolint:gosec // for the users of tasks and images
		return "", run.Failf(muster.WorkerInternal, "create the worker's folder of models: %w", err)
	}
	return m.owner, nil
}

// evict removes the folders that no task has used for maxIdle, and the remains of earlier removals. It logs failures: they do not concern
// the task that uses another one.
func (m *modelFolders) evict() {
	for _, dir := range m.evictable() {
		if err := os.RemoveAll(dir); err != nil {
			m.log.Warn("removing unused models failed", slog.String("folder", dir), slog.Any("error", err))
		}
	}
}

// evictable renames the folders to remove, so that no task gets a part of one, and returns them.
func (m *modelFolders) evictable() (remove []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.projects)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("listing the projects' folders of models failed", slog.Any("error", err))
	}
	for _, e := range entries {
		dir := filepath.Join(m.projects, e.Name())
		if strings.HasPrefix(e.Name(), evictedPrefix) {
			remove = append(remove, dir)
			continue
		}
		info, err := e.Info()
		if err != nil || m.users[dir] > 0 || time.Since(info.ModTime()) < maxIdle {
			continue
		}
		evicted := filepath.Join(m.projects, evictedPrefix+e.Name())
		if err := os.Rename(dir, evicted); err != nil {
			m.log.Warn("removing unused models failed", slog.String("folder", dir), slog.Any("error", err))
			continue
		}
		m.log.Info("unused models removed", slog.String("folder", dir), slog.Time("used", info.ModTime()))
		remove = append(remove, evicted)
	}
	return remove
}

// touch notes a use of a folder.
func touch(dir string) error {
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// isPrivate reports whether dir is closed to other users of the machine. It is open if tasks have their own users.
func isPrivate(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o001 == 0
}
