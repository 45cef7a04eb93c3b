package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/muster-dev/muster/internal/agent/run"
)

// maxPooled is the most folders that a pool keeps.
const maxPooled = 64

// folderPool creates and removes the folders of attempts. It reuses those in which a task left no file: for small tasks, creating
// and removing folders costs more than everything else. Its methods may be called concurrently.
type folderPool struct {
	dir     string   // of the pooled folders
	name    string   // prefix of their names, before a number
	subdirs []string // the folders in each

	mu     sync.Mutex
	pooled []string
	number int
}

// removeLeftovers removes the pooled folders of earlier incarnations.
func (f *folderPool) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(f.dir, f.name+"*"))
	for _, path := range old {
		err = errors.Join(err, run.RemoveAll(path))
	}
	return err
}

// acquire creates an attempt's folder with its empty subfolders.
func (f *folderPool) acquire(base string) error {
	if path := f.pop(); path != "" {
		if os.Rename(path, base) == nil {
			return nil
		}
		f.push(path)
	}
	err := os.Mkdir(base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// An earlier incarnation of the worker was killed before its cleanup.
		if err = run.RemoveAll(base); err == nil {
			err = os.Mkdir(base, 0o700)
		}
	}
	for _, subdir := range f.subdirs {
		if err == nil {
			err = os.Mkdir(filepath.Join(base, subdir), 0o700)
		}
	}
	return err
}

// release recycles or removes an attempt's folder.
func (f *folderPool) release(base string) error {
	if f.recycle(base) {
		return nil
	}
	return run.RemoveAll(base)
}

// recycle moves an empty folder to the pool and reports whether it did.
func (f *folderPool) recycle(base string) bool {
	if !pristine(base, f.subdirs) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pooled) >= maxPooled {
		return false
	}
	f.number++
	path := filepath.Join(f.dir, f.name+strconv.Itoa(f.number))
	if os.Rename(base, path) != nil {
		return false
	}
	f.pooled = append(f.pooled, path)
	return true
}

func (f *folderPool) pop() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pooled) == 0 {
		return ""
	}
	path := f.pooled[len(f.pooled)-1]
	f.pooled = f.pooled[:len(f.pooled)-1]
	return path
}

func (f *folderPool) push(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pooled = append(f.pooled, path)
}
