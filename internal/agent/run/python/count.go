package python

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// count knows how many modules of an environment are compiled.
type count struct {
	all  int            // modules
	left map[string]int // modules by their folder, of those that are not compiled in whole
	full int            // modules of the others
}

// newCount counts the modules in a folder. What cannot be read is not counted.
func newCount(dir string) *count {
	n := &count{left: map[string]int{}}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it has gone
		case e.IsDir() && e.Name() == compiledDir:
			return fs.SkipDir
		case e.Type().IsRegular() && filepath.Ext(path) == ".py":
			n.all++
			n.left[filepath.Dir(path)]++
		}
		return nil
	})
	return n
}

// compiledDir is where Python keeps the compiled modules of a folder.
const compiledDir = "__pycache__"

// done looks how many are compiled by now. Only the names in folders that were not whole before are read.
func (n *count) done() int {
	done := n.full
	for dir, modules := range n.left {
		entries, err := os.ReadDir(filepath.Join(dir, compiledDir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		here := 0
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".pyc") {
				here++
			}
		}
		here = min(here, modules) // a package may bring some for other versions of Python
		done += here
		if here == modules {
			n.full += modules
			delete(n.left, dir)
		}
	}
	return done
}
