package runtimes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// maxModuleAge is how long the modules of other versions of Muster are kept for running tasks.
const maxModuleAge = 30 * 24 * time.Hour

// ModuleDirs returns the folders with the modules of a runtime's kinds.
func (r *Runtimes) ModuleDirs(name string) ([]string, error) {
	if _, err := r.definition(name); err != nil {
		return nil, run.Failf(muster.Dependency, "%w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moduleDir != "" {
		if _, err := os.Stat(r.moduleDir); err == nil {
			return []string{r.moduleDir}, nil
		}
	}
	dir, err := r.writeModules()
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "write the modules of the runtimes: %w", err)
	}
	r.moduleDir = dir
	return []string{dir}, nil
}

// writeModules writes the modules of all runtimes, which import each other, to a folder whose name is the hash of their content. All
// users may read them.
func (r *Runtimes) writeModules() (string, error) {
	modules := map[string][]byte{} // by path in the folder
	found, err := fs.Glob(r.files, "python/*/muster_*/*.py")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range found {
		text, err := fs.ReadFile(r.files, name)
		if err != nil {
			return "", err
		}
		rel := path.Join(path.Base(path.Dir(name)), path.Base(name))
		modules[rel] = text
		fmt.Fprintf(sum, "%s %d\n%s", rel, len(text), text)
	}
	root := filepath.Join(r.cfg.Dir, "runtimes", "code")
	dir := filepath.Join(root, hex.EncodeToString(sum.Sum(nil)[:8]))
	for name, text := range modules {
		if err := writePublic(filepath.Join(dir, filepath.FromSlash(name)), text); err != nil {
			return "", err
		}
	}
	r.pruneModules(root, dir)
	return dir, os.Chmod(dir, 0o755) //nolint:gosec // the users of tasks read it
}

// writePublic writes a file that all users may read, unless it exists, and creates its folder. It ignores the umask.
func writePublic(name string, text []byte) error {
	if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, text) {
		return nil
	}
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the users of tasks read it
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the users of tasks read it
		return err
	}
	return atomicfile.Write(name, text, 0o644)
}

// pruneModules removes old modules of other versions and marks the current ones as used.
func (r *Runtimes) pruneModules(root, current string) {
	now := time.Now()
	_ = os.Chtimes(current, now, now) // after an error another version may remove it earlier
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		return err != nil || e.Name() == filepath.Base(current) || now.Sub(info.ModTime()) < maxModuleAge
	})
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
			r.cfg.Log.Warn("removing old modules of runtimes failed", slog.Any("error", err))
		}
	}
}
