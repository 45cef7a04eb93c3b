package python

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// compileCounter counts the compiled modules of an environment.
type compileCounter struct {
	total     int            // modules
	pending   map[string]int // number of modules by folder, for folders that are not yet compiled completely
	completed int            // modules in the other folders
}

// newCompileCounter counts the modules below a folder. It skips what it cannot read.
func newCompileCounter(dir string) *compileCounter {
	n := &compileCounter{pending: map[string]int{}}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it was removed
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

// compiled returns how many modules are compiled. It only reads the pending folders.
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
		compiled = min(compiled, modules) // a package may include some for other versions of Python
		done += compiled
		if compiled == modules {
			n.completed += modules
			delete(n.pending, dir)
		}
	}
	return done
}
