package kinds

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// modelParents are where the models and data sets of a project are, in its folder: the hub's cache, data sets, and what else tasks put there.
var modelParents = []string{"hf/hub", "datasets", "."}

// lockFolder has the locks by which tasks say what they use: files with the names of models and data sets. Their modification times are the last uses.
const lockFolder = ".in-use"

// Limits of the measurement of one model, whose files a task may have made up. One beyond them is removed first.
const (
	maxModelFiles = 200_000
	maxModelDepth = 100
)

// storedModel is a model or data set in the folder of a project.
type storedModel struct {
	project string // the folder
	path    string // in it
	size    muster.Size
	used    time.Time
}

// enforceLimit removes models and data sets, least recently used first, until those of all projects are within the limit, and enough of the disk is
// free. It removes none that a process has a lock on. While a task of a project runs, it removes only those of the project that were used with a lock.
// Failures are logged: they do not concern a task.
func (m *modelFolders) enforceLimit() {
	over := m.missing()
	if m.limit == 0 && over == 0 || !m.enforcing.TryLock() { // another task is doing it
		return
	}
	defer m.enforcing.Unlock()
	stored := m.list()
	if m.limit > 0 {
		var total muster.Size
		for i := range stored {
			total += stored[i].size
		}
		over = max(over, total-m.limit)
	}
	slices.SortStableFunc(stored, func(a, b storedModel) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path))
	})
	for i := range stored {
		if over <= 0 {
			return
		}
		s := &stored[i]
		removed, err := m.removeModel(s)
		if err != nil {
			m.log.Warn("removing a model failed", slog.String("folder", s.project), slog.String("model", s.path), slog.Any("error", err))
		}
		if removed {
			over -= s.size
			m.log.Info("model removed to free disk space", slog.String("folder", s.project), slog.String("model", s.path),
				slog.String("size", s.size.String()), slog.Time("used", s.used))
		}
	}
	if over > 0 && len(stored) > 0 {
		m.log.Warn("models of tasks take too much disk space, and all are in use", slog.String("over", over.String()), slog.String("limit", m.limit.String()))
	}
}

// list returns what all projects store. Tasks may change it meanwhile, and make links in it: no link is followed out of a project's folder.
func (m *modelFolders) list() (all []storedModel) {
	projects, err := os.ReadDir(m.projects)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("listing the projects' folders of models failed", slog.Any("error", err))
	}
	for _, p := range projects {
		dir := filepath.Join(m.projects, p.Name())
		root, err := os.OpenRoot(dir)
		if err != nil {
			continue // it was evicted meanwhile
		}
		for _, parent := range modelParents {
			entries, _ := fs.ReadDir(root.FS(), parent) // most projects do not have all
			for _, e := range entries {
				at := path.Join(parent, e.Name())
				if at == "hf" || at == "datasets" || at == lockFolder {
					continue
				}
				used, err := root.Lstat(path.Join(lockFolder, e.Name()))
				if err != nil {
					used, err = root.Lstat(at)
				}
				if err == nil { // it was not removed meanwhile
					s := storedModel{project: dir, path: at, used: used.ModTime()}
					if s.size, err = measure(root, at); err != nil {
						s.used = time.Time{}
					}
					all = append(all, s)
				}
			}
		}
		_ = root.Close()
	}
	return all
}

// measure returns what a model takes on the disk. It fails beyond the limits of the measurement.
func measure(root *os.Root, at string) (size muster.Size, err error) {
	files := 0
	return size, fs.WalkDir(root.FS(), at, func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if files++; err != nil || files > maxModelFiles || strings.Count(p, "/") > maxModelDepth {
			return fs.ErrInvalid
		}
		if info, err := e.Info(); err == nil { // it was not removed meanwhile
			size += diskUsage(info)
		}
		return nil
	})
}

// removeModel removes a model unless a task uses it, and reports whether it did.
func (m *modelFolders) removeModel(s *storedModel) (removed bool, err error) {
	root, err := os.OpenRoot(s.project)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	lock, noLock := root.OpenFile(path.Join(lockFolder, path.Base(s.path)), os.O_RDWR|nonblocking, 0)
	if noLock == nil {
		defer func() { _ = lock.Close() }()
		if !lockExclusively(lock) {
			return false, nil
		}
	}
	evicted := evictedPrefix + rand.Text()
	m.mu.Lock()
	busy := m.users[s.project] > 0 && noLock != nil
	if !busy {
		err = root.Rename(s.path, evicted)
	}
	m.mu.Unlock()
	if busy || err != nil {
		return false, err
	}
	return true, root.RemoveAll(evicted)
}
