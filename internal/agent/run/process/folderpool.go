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

// maxPooled is how many folders are kept for later attempts.
const maxPooled = 64

// folderPool makes and removes the folders of attempts. Those in which a task left no
// file, as most of the small ones do, become the next attempt's: to make and
// remove them costs more than all else that is done for such a task.
type folderPool struct {
	dir     string   // of the spare ones
	name    string   // of spare ones, with a number behind
	subdirs []string // the folders in each

	mu     sync.Mutex
	pooled []string
	number int
}

// removeLeftovers removes the spare folders of an earlier life.
func (f *folderPool) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(f.dir, f.name+"*"))
	for _, path := range old {
		err = errors.Join(err, run.RemoveAll(path))
	}
	return err
}

// acquire makes an attempt's folder with its parts, all of them empty.
func (f *folderPool) acquire(base string) error {
	if path := f.pop(); path != "" {
		if os.Rename(path, base) == nil {
			return nil
		}
		f.push(path)
	}
	err := os.Mkdir(base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// From an earlier life of the worker, which had no time to clean up.
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

// release takes an attempt's folder back.
func (f *folderPool) release(base string) error {
	if f.recycle(base) {
		return nil
	}
	return run.RemoveAll(base)
}

// recycle makes a spare one of a folder if nothing was left in it, and reports
// whether it did.
func (f *folderPool) recycle(base string) bool {
	if !pristine(base, f.subdirs) {
		return false
	}
	path := f.nextPath()
	if path == "" || os.Rename(base, path) != nil {
		return false
	}
	f.push(path)
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

// nextPath names another spare folder, "" if there are enough.
func (f *folderPool) nextPath() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pooled) >= maxPooled {
		return ""
	}
	f.number++
	return filepath.Join(f.dir, f.name+strconv.Itoa(f.number))
}
