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

// maxSpare is how many folders are kept for later attempts.
const maxSpare = 64

// folders makes and removes the folders of attempts. Those in which a task left no
// file, as most of the small ones do, become the next attempt's: to make and
// remove them costs more than all else that is done for such a task.
type folders struct {
	dir   string   // of the spare ones
	name  string   // of spare ones, with a number behind
	parts []string // the folders in each

	mu     sync.Mutex
	spare  []string
	number int
}

// clear removes the spare folders of an earlier life.
func (f *folders) clear() error {
	old, err := filepath.Glob(filepath.Join(f.dir, f.name+"*"))
	for _, path := range old {
		err = errors.Join(err, run.RemoveAll(path))
	}
	return err
}

// take makes an attempt's folder with its parts, all of them empty.
func (f *folders) take(base string) error {
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
	for _, part := range f.parts {
		if err == nil {
			err = os.Mkdir(filepath.Join(base, part), 0o700)
		}
	}
	return err
}

// give takes an attempt's folder back.
func (f *folders) give(base string) error {
	if f.keep(base) {
		return nil
	}
	return run.RemoveAll(base)
}

// keep makes a spare one of a folder if nothing was left in it, and reports
// whether it did.
func (f *folders) keep(base string) bool {
	if !pristine(base, f.parts) {
		return false
	}
	path := f.next()
	if path == "" || os.Rename(base, path) != nil {
		return false
	}
	f.push(path)
	return true
}

func (f *folders) pop() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spare) == 0 {
		return ""
	}
	path := f.spare[len(f.spare)-1]
	f.spare = f.spare[:len(f.spare)-1]
	return path
}

func (f *folders) push(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spare = append(f.spare, path)
}

// next names another spare folder, "" if there are enough.
func (f *folders) next() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spare) >= maxSpare {
		return ""
	}
	f.number++
	return filepath.Join(f.dir, f.name+strconv.Itoa(f.number))
}
