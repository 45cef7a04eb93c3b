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
	buildTimeout = 30 * time.Minute
	unusedAge    = 30 * 24 * time.Hour
	marker       = "muster-env.json" // in a finished environment
	recheck      = 20                // the files of an environment are checked at most 1/20 of the time
)

// record is the content of marker.
type record struct {
	Key string `json:"key"`
	Installed
}

// Unfinished begins the names of folders in which environments are made, before the name of the
// environment.
const Unfinished = ".build-"

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
func New(env *run.Env) (*Envs, error) {
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "the worker's data dir %s has no absolute path: %w", env.Dir, err)
	}
	return &Envs{
		dir:      filepath.Join(dir, "envs"),
		log:      env.Log,
		tool:     tool{given: env.UV, data: dir, path: env.Path, limits: env.Limits, lock: make(chan struct{}, 1)},
		building: map[string]chan struct{}{},
		checked:  map[string]time.Time{},
		versions: map[string]string{},
	}, nil
}

// NewApart returns those of a worker's data dir for another program than the worker: what it runs is not
// ended when the worker starts.
func NewApart(env *run.Env) (*Envs, error) {
	e, err := New(env)
	if err == nil {
		e.tool.apart = true
	}
	return e, err
}

// UV returns the path of uv, which is fetched into the data dir if there is none.
func (e *Envs) UV(ctx context.Context, watch run.Watch) (string, error) {
	return e.tool.find(ctx, watch)
}

// Get returns the folder of the environment, built if need be. A failure is a
// Dependency TaskError that ends with uv's last words.
func (e *Envs) Get(ctx context.Context, w Want, watch run.Watch) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	uv, err := e.tool.find(ctx, watch)
	if err != nil {
		return "", err
	}
	interpreter, err := e.interpreter(ctx, uv, w.Version, watch)
	if err != nil {
		return "", err
	}
	key, err := w.key(interpreter)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.dir, key)
	for {
		turn, mine := e.claim(key)
		if mine {
			err := e.ensure(ctx, uv, interpreter, dir, key, &w, watch)
			e.release(key, turn)
			return dir, err
		}
		watch.Step("python environment: another task is installing the same")
		select {
		case <-turn:
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
	if turn, ok := e.building[key]; ok {
		return turn, false
	}
	turn := make(chan struct{})
	e.building[key] = turn
	return turn, true
}

func (e *Envs) release(key string, turn chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.building, key)
	close(turn)
}

// ensure leaves a whole environment at dir.
func (e *Envs) ensure(ctx context.Context, uv, interpreter, dir, key string, w *Want, watch run.Watch) error {
	if e.usable(ctx, dir, key, watch) {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(dir, marker), now, now) // else it only counts as longer unused
		return nil
	}
	begun := time.Now()
	e.prune(begun)
	err := e.place(ctx, uv, interpreter, dir, w, func(_ string, in Installed) (string, []byte, error) {
		b, err := json.Marshal(record{Key: key, Installed: in})
		return marker, b, err
	}, watch)
	if err == nil {
		e.markChecked(key, time.Now())
		watch.Say(fmt.Sprintf("%s ready after %.1f s", w.title(), time.Since(begun).Seconds()))
	}
	return err
}

// Finish returns the name and the content of the file that marks an environment as finished. made is the folder in
// which it was built and checked, and which packages have written.
type Finish func(made string, in Installed) (name string, data []byte, err error)

// Make makes an environment at dir, whole or not at all, in place of what is there. Calls for one dir must not overlap.
func (e *Envs) Make(ctx context.Context, w *Want, dir string, finish Finish, watch run.Watch) error {
	uv, err := e.tool.find(ctx, watch)
	if err != nil {
		return err
	}
	interpreter, err := e.interpreter(ctx, uv, w.Version, watch)
	if err != nil {
		return err
	}
	return e.place(ctx, uv, interpreter, dir, w, finish, watch)
}

// place does the work of Make.
func (e *Envs) place(ctx context.Context, uv, interpreter, dir string, w *Want, finish Finish, watch run.Watch) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for Python environments cannot be made: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), Unfinished+filepath.Base(dir)+"-")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the folder for a Python environment cannot be made: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // what stays is removed as unfinished
	built := filepath.Join(tmp, "env")
	in, err := e.buildWhole(ctx, uv, interpreter, tmp, built, w, watch)
	if err != nil {
		return err
	}
	if err := mark(tmp, built, in, finish); err != nil {
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

// mark writes the file that finish returns into the environment, built in tmp. From then on the user of builds, to
// whom tmp was given, cannot get there by its path.
func mark(tmp, built string, in Installed, finish Finish) error {
	if err := takeBack(tmp); err != nil {
		return err
	}
	folder, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	base := filepath.Base(built)
	if st, err := folder.Lstat(base); err != nil || !st.IsDir() {
		return fmt.Errorf("its folder was replaced: %w", errors.Join(errDamaged, err))
	}
	name, data, err := finish(built, in)
	if err != nil {
		return err
	}
	return run.WriteIn(folder, filepath.Join(base, name), append(data, '\n'))
}

// buildWhole builds an environment and checks it. Packages that uv had kept and that are damaged are fetched again.
func (e *Envs) buildWhole(ctx context.Context, uv, interpreter, tmp, built string, w *Want, watch run.Watch) (Installed, error) {
	in, err := e.buildChecked(ctx, uv, interpreter, tmp, built, w, watch)
	if !errors.Is(err, errDamaged) || w.Fresh {
		return in, err
	}
	watch.Say(w.title() + ": the cached packages are damaged, too, and fetched again: " + err.Error())
	if err := e.Forget(ctx); err != nil {
		e.log.Warn("cached Python packages cannot be removed", slog.Any("error", err))
	}
	if err := errors.Join(takeBack(tmp), os.RemoveAll(built)); err != nil {
		return Installed{}, run.Failf(muster.WorkerInternal, "a damaged Python environment cannot be removed: %w", err)
	}
	fresh := *w
	fresh.Fresh = true
	return e.buildChecked(ctx, uv, interpreter, tmp, built, &fresh, watch)
}

func (e *Envs) buildChecked(ctx context.Context, uv, interpreter, tmp, built string, w *Want, watch run.Watch) (Installed, error) {
	if err := e.build(ctx, uv, interpreter, tmp, built, w, watch); err != nil {
		return Installed{}, err
	}
	in, err := list(built)
	if err == nil {
		err = in.Check(ctx, built)
	}
	if err != nil {
		return Installed{}, run.Failf(muster.Dependency, "%s: %w: %w", w.title(), errDamaged, err)
	}
	return in, nil
}

// Works returns why the interpreter of an environment does not work.
func (e *Envs) Works(ctx context.Context, dir string) error {
	return e.tool.held(ctx, []string{dir}, nil, dir, e.tool.environment(), listener{say: func(string) {}}, filepath.Join(dir, "bin", "python"), "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)")
}

// Ask runs a script, which is the worker's own, with an interpreter, and says each line that it prints.
func (e *Envs) Ask(ctx context.Context, interpreter, script string, say func(line string), args ...string) error {
	return command(ctx, filepath.Dir(interpreter), e.tool.environment(), listener{say: say}, interpreter, append([]string{"-I", "-c", script}, args...)...)
}

// Cache is the folder in which what was fetched is kept for other environments, "" where the operator
// named one, which others may use.
func (e *Envs) Cache() string {
	if os.Getenv("UV_CACHE_DIR") != "" {
		return ""
	}
	return e.tool.cache()
}

// Forget empties Cache. It waits for those that use it.
func (e *Envs) Forget(ctx context.Context) error {
	uv, err := e.tool.find(ctx, run.Watch{Step: func(string) {}, Say: func(string) {}})
	if err != nil || e.Cache() == "" {
		return err
	}
	return e.tool.uv(ctx, uv, func(string) {}, "cache", "clean")
}

// usable reports whether a finished, working and whole environment is at dir, and says why one that was finished is not.
func (e *Envs) usable(ctx context.Context, dir, key string, watch run.Watch) bool {
	err := e.check(ctx, dir, key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		watch.Say(fmt.Sprintf("the Python environment is built again: %v", err))
	}
	return err == nil
}

// check returns what is wrong with the environment at dir, fs.ErrNotExist if none was finished there. To
// check the files takes a while, so that it is done again only after recheck times as long.
func (e *Envs) check(ctx context.Context, dir, key string) error {
	b, err := os.ReadFile(filepath.Join(dir, marker))
	if err != nil {
		return err
	}
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return fmt.Errorf("its %s is damaged: %w", marker, err)
	}
	e.mu.Lock()
	due, works := e.checked[key]
	e.mu.Unlock()
	begun := time.Now()
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err == nil && works && begun.Before(due) {
		return nil
	}
	if err := rec.Check(ctx, dir); err != nil {
		return err
	}
	if !works {
		if err := e.Works(ctx, dir); err != nil {
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
	e.checked[key] = now.Add(recheck * now.Sub(begun))
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
		if _, err := os.Stat(filepath.Join(path, marker)); err == nil {
			used = filepath.Join(path, marker)
		}
		info, err := os.Stat(used)
		if err != nil || now.Sub(info.ModTime()) < unusedAge && used != path || now.Sub(info.ModTime()) < buildTimeout {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			e.log.Warn("an unused Python environment cannot be removed", slog.String("folder", path), slog.Any("error", err))
		}
	}
}
