package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	buildTimeout  = 30 * time.Minute
	maxUnusedAge  = 30 * 24 * time.Hour
	markerFile    = "muster-env.json" // in a finished environment
	recheckFactor = 20                // the files of an environment are checked at most 1/20 of the time
)

// record is the content of marker.
type record struct {
	Key string `json:"key"`
	Installed
}

// UnfinishedPrefix begins the names of folders in which environments are made, before the name of the
// environment.
const UnfinishedPrefix = ".build-"

// Envs makes and keeps environments. Its methods may be called at the same time.
type Envs struct {
	dir  string // environments, by key
	log  *slog.Logger
	tool tool

	mu       sync.Mutex
	building map[string]chan struct{} // closed when the build ends
	checked  map[string]time.Time     // environments that work → when their files are checked again
	versions map[string]string        // asked-for version → interpreter, found in this life
	pruned   bool
}

// New returns the environments of a worker.
func New(deps *run.Deps) (*Envs, error) {
	dir, err := filepath.Abs(deps.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", deps.Dir, err)
	}
	return &Envs{
		dir:      filepath.Join(dir, "envs"),
		log:      deps.Log,
		tool:     tool{configured: deps.UV, data: dir, path: deps.Path, isolator: deps.Isolator, lock: make(chan struct{}, 1)},
		building: map[string]chan struct{}{},
		checked:  map[string]time.Time{},
		versions: map[string]string{},
	}, nil
}

// NewStandalone returns those of a worker's data dir for another program than the worker: what it runs is not
// ended when the worker starts.
func NewStandalone(deps *run.Deps) (*Envs, error) {
	e, err := New(deps)
	if err == nil {
		e.tool.standalone = true
	}
	return e, err
}

// UV returns the path of uv, which is fetched into the data dir if there is none.
func (e *Envs) UV(ctx context.Context, observer run.Observer) (string, error) {
	return e.tool.find(ctx, observer)
}

// Get returns the folder of the environment, built if need be. A failure is a
// Dependency TaskError that ends with uv's last words.
func (e *Envs) Get(ctx context.Context, w Spec, observer run.Observer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	uv, err := e.tool.find(ctx, observer)
	if err != nil {
		return "", err
	}
	interpreter, err := e.findInterpreter(ctx, uv, w.Version, observer)
	if err != nil {
		return "", err
	}
	key, err := w.key(interpreter)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.dir, key)
	for {
		done, claimed := e.claim(key)
		if claimed {
			err := e.ensure(ctx, uv, interpreter, dir, key, &w, observer)
			e.release(key, done)
			return dir, err
		}
		observer.Step("python environment: another task is installing the same")
		select {
		case <-done:
		case <-ctx.Done():
			return "", run.Failf(muster.Dependency, "the Python environment was not ready in time: %w", context.Cause(ctx))
		}
	}
}

// claim makes the caller the builder of an environment, or returns the channel
// that is closed when the present one is done.
func (e *Envs) claim(key string) (chan struct{}, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if done, ok := e.building[key]; ok {
		return done, false
	}
	done := make(chan struct{})
	e.building[key] = done
	return done, true
}

func (e *Envs) release(key string, done chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.building, key)
	close(done)
}

// ensure leaves a whole environment at dir.
func (e *Envs) ensure(ctx context.Context, uv, interpreter, dir, key string, w *Spec, observer run.Observer) error {
	if e.usable(ctx, dir, key, observer) {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(dir, markerFile), now, now) // else it only counts as longer unused
		return nil
	}
	begun := time.Now()
	e.prune(begun)
	err := e.install(ctx, uv, interpreter, dir, w, func(_ string, in Installed) (string, []byte, error) {
		b, err := json.Marshal(record{Key: key, Installed: in})
		return markerFile, b, err
	}, observer)
	if err == nil {
		e.markChecked(key, time.Now())
		observer.LogLine(fmt.Sprintf("%s ready after %.1f s", w.title(), time.Since(begun).Seconds()))
	}
	return err
}

// Finish returns the name and the content of the file that marks an environment as finished. made is the folder in
// which it was built and checked, and which packages have written.
type Finish func(made string, in Installed) (name string, data []byte, err error)

// Make makes an environment at dir, whole or not at all, in place of what is there. Calls for one dir must not overlap.
func (e *Envs) Make(ctx context.Context, w *Spec, dir string, finish Finish, observer run.Observer) error {
	uv, err := e.tool.find(ctx, observer)
	if err != nil {
		return err
	}
	interpreter, err := e.findInterpreter(ctx, uv, w.Version, observer)
	if err != nil {
		return err
	}
	return e.install(ctx, uv, interpreter, dir, w, finish, observer)
}

// install does the work of Make.
func (e *Envs) install(ctx context.Context, uv, interpreter, dir string, w *Spec, finish Finish, observer run.Observer) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for Python environments cannot be made: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), UnfinishedPrefix+filepath.Base(dir)+"-")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for a Python environment cannot be made: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what stays is removed as unfinished
	built := filepath.Join(tmp, "env")
	in, err := e.buildWithRetry(ctx, uv, interpreter, tmp, built, w, observer)
	if err != nil {
		return err
	}
	if err := writeMarker(tmp, built, in, finish); err != nil {
		return run.Failf(muster.WorkerInternal, "the Python environment cannot be marked as finished: %w", err)
	}
	if err := os.Rename(dir, filepath.Join(tmp, "broken")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return run.Failf(muster.WorkerInternal, "a broken Python environment cannot be removed: %w", err)
	}
	if err := os.Rename(built, dir); err != nil {
		return run.Failf(muster.WorkerInternal, "the Python environment cannot be moved to its place: %w", err)
	}
	return nil
}

// writeMarker writes the file that finish returns into the environment, built in tmp. From then on the user of builds, to
// whom tmp was given, cannot get there by its path.
func writeMarker(tmp, builtDir string, in Installed, finish Finish) error {
	if err := reclaim(tmp); err != nil {
		return err
	}
	folder, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	base := filepath.Base(builtDir)
	if st, err := folder.Lstat(base); err != nil || !st.IsDir() {
		return fmt.Errorf("its folder was replaced: %w", errors.Join(errDamaged, err))
	}
	name, data, err := finish(builtDir, in)
	if err != nil {
		return err
	}
	return run.ReplaceFile(folder, filepath.Join(base, name), append(data, '\n'))
}

// buildWithRetry builds an environment and checks it. Packages that uv had kept and that are damaged are fetched again.
func (e *Envs) buildWithRetry(ctx context.Context, uv, interpreter, tmp, built string, w *Spec, observer run.Observer) (Installed, error) {
	in, err := e.buildAndCheck(ctx, uv, interpreter, tmp, built, w, observer)
	if !errors.Is(err, errDamaged) || w.NoCache {
		return in, err
	}
	observer.LogLine(w.title() + ": the cached packages are damaged, too, and fetched again: " + err.Error())
	if err := e.CleanCache(ctx); err != nil {
		e.log.Warn("cached Python packages cannot be removed", slog.Any("error", err))
	}
	if err := errors.Join(reclaim(tmp), os.RemoveAll(built)); err != nil {
		return Installed{}, run.Failf(muster.WorkerInternal, "a damaged Python environment cannot be removed: %w", err)
	}
	retry := *w
	retry.NoCache = true
	return e.buildAndCheck(ctx, uv, interpreter, tmp, built, &retry, observer)
}

func (e *Envs) buildAndCheck(ctx context.Context, uv, interpreter, tmp, built string, w *Spec, observer run.Observer) (Installed, error) {
	if err := e.runBuild(ctx, uv, interpreter, tmp, built, w, observer); err != nil {
		return Installed{}, err
	}
	in, err := listInstalled(built)
	if err == nil {
		err = in.Check(ctx, built)
	}
	if err != nil {
		return Installed{}, run.Failf(muster.Dependency, "%s: %w: %w", w.title(), errDamaged, err)
	}
	return in, nil
}

// CheckInterpreter returns why the interpreter of an environment does not work.
func (e *Envs) CheckInterpreter(ctx context.Context, dir string) error {
	return e.tool.runIsolated(ctx, []string{dir}, nil, dir, e.tool.env(), outputHandler{onLine: func(string) {}}, filepath.Join(dir, "bin", "python"), "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)")
}

// RunScript runs a script, which is the worker's own, with an interpreter, and says each line that it prints.
func (e *Envs) RunScript(ctx context.Context, interpreter, script string, logLine func(line string), args ...string) error {
	return command(ctx, filepath.Dir(interpreter), e.tool.env(), outputHandler{onLine: logLine}, interpreter, append([]string{"-I", "-c", script}, args...)...)
}

// CacheDir is the folder in which what was fetched is kept for other environments, "" where the operator
// named one, which others may use.
func (e *Envs) CacheDir() string {
	if os.Getenv("UV_CACHE_DIR") != "" {
		return ""
	}
	return e.tool.cacheDir()
}

// CleanCache empties Cache. It waits for those that use it.
func (e *Envs) CleanCache(ctx context.Context) error {
	uv, err := e.tool.find(ctx, run.Observer{Step: func(string) {}, LogLine: func(string) {}})
	if err != nil || e.CacheDir() == "" {
		return err
	}
	return e.tool.uv(ctx, uv, func(string) {}, "cache", "clean")
}

// usable reports whether a finished, working and whole environment is at dir, and says why one that was finished is not.
func (e *Envs) usable(ctx context.Context, dir, key string, observer run.Observer) bool {
	err := e.check(ctx, dir, key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		observer.LogLine(fmt.Sprintf("the Python environment is built again: %v", err))
	}
	return err == nil
}

// check returns what is wrong with the environment at dir, fs.ErrNotExist if none was finished there. To
// check the files takes a while, so that it is done again only after recheck times as long.
func (e *Envs) check(ctx context.Context, dir, key string) error {
	b, err := os.ReadFile(filepath.Join(dir, markerFile))
	if err != nil {
		return err
	}
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return fmt.Errorf("its %s is damaged: %w", markerFile, err)
	}
	e.mu.Lock()
	recheckAt, works := e.checked[key]
	e.mu.Unlock()
	begun := time.Now()
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err == nil && works && begun.Before(recheckAt) {
		return nil
	}
	if err := rec.Check(ctx, dir); err != nil {
		return err
	}
	if !works {
		if err := e.CheckInterpreter(ctx, dir); err != nil {
			return fmt.Errorf("its interpreter does not work: %w", err)
		}
	}
	e.markChecked(key, begun)
	return nil
}

// markChecked notes that an environment is whole; the check began at begun.
func (e *Envs) markChecked(key string, begun time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.checked[key] = now.Add(recheckFactor * now.Sub(begun))
}

// prune removes, once in a worker's life, unfinished builds of earlier lives and
// environments that were not used for long.
func (e *Envs) prune(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pruned {
		return
	}
	e.pruned = true
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return // there is nothing to see, then nothing to remove
	}
	for _, entry := range entries {
		path := filepath.Join(e.dir, entry.Name())
		used := path // a build, or an environment that was never finished
		if _, busy := e.building[entry.Name()]; busy || !e.checked[entry.Name()].IsZero() {
			continue
		}
		if _, err := os.Stat(filepath.Join(path, markerFile)); err == nil {
			used = filepath.Join(path, markerFile)
		}
		info, err := os.Stat(used)
		if err != nil || now.Sub(info.ModTime()) < maxUnusedAge && used != path || now.Sub(info.ModTime()) < buildTimeout {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			e.log.Warn("an unused Python environment cannot be removed", slog.String("folder", path), slog.Any("error", err))
		}
	}
}
