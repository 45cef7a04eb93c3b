package python

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// compileCounter knows how many modules of an environment are compiled.
type compileCounter struct {
	total     int            // modules
	pending   map[string]int // modules by their folder, of those that are not compiled in whole
	completed int            // modules of the others
}

// newCompileCounter counts the modules in a folder. What cannot be read is not counted.
func newCompileCounter(dir string) *compileCounter {
	n := &compileCounter{pending: map[string]int{}}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it has gone
		case e.IsDir() && e.Name() == compiledDir:
			return fs.SkipDir
		case e.Type().IsRegular() && filepath.Ext(path) == ".py":
			n.total++
			n.pending[filepath.Dir(path)]++
		}
		return nil
	})
	return n
}

// compiledDir is where Python keeps the compiled modules of a folder.
const compiledDir = "__pycache__"

// compiled looks how many are compiled by now. Only the names in folders that were not whole before are read.
func (n *compileCounter) compiled() int {
	done := n.completed
	for dir, modules := range n.pending {
		entries, err := os.ReadDir(filepath.Join(dir, compiledDir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		compiled := 0
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".pyc") {
				compiled++
			}
		}
		compiled = min(compiled, modules) // a package may bring some for other versions of Python
		done += compiled
		if compiled == modules {
			n.completed += modules
			delete(n.pending, dir)
		}
	}
	return done
}
