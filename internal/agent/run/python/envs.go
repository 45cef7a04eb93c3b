package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// record is the content of markerFile.
type record struct {
	Key string `json:"key"`
	Installed
}

// UnfinishedPrefix begins the names of folders with unfinished builds; the name of the environment follows.
const UnfinishedPrefix = ".build-"

// Envs builds and stores environments. Its methods may be called concurrently.
type Envs struct {
	dir  string // environments, by key
	log  *slog.Logger
	tool tool

	mu       sync.Mutex
	building map[string]chan struct{} // closed when the build ends
	checked  map[string]time.Time     // folders of working environments → when their files are checked again
	versions map[string]string        // requested version → interpreter
	pruned   bool
}

// New returns the environments of a worker's data dir. standalone is for another program than the worker: a starting worker does not kill
// the tools that it runs.
func New(deps *run.Deps, standalone bool) (*Envs, error) {
	dir, err := filepath.Abs(deps.Dir)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "find the absolute path of data dir %s: %w", deps.Dir, err)
	}
	return &Envs{
		dir:      filepath.Join(dir, "envs"),
		log:      deps.Log,
		tool:     tool{configured: deps.UV, data: dir, standalone: standalone, path: deps.Path, isolator: deps.Isolator, lock: make(chan struct{}, 1)},
		building: map[string]chan struct{}{},
		checked:  map[string]time.Time{},
		versions: map[string]string{},
	}, nil
}

// UV returns the path of uv. It fetches uv into the data dir if necessary.
func (e *Envs) UV(ctx context.Context, observer run.Observer) (string, error) {
	return e.tool.find(ctx, observer)
}

// Get returns the folder of the environment and builds it if necessary. A failed build is a Dependency TaskError that ends with
// uv's last output.
func (e *Envs) Get(ctx context.Context, w Spec, observer run.Observer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	b, err := e.newBuild(ctx, &w, observer)
	if err != nil {
		return "", err
	}
	key, err := w.key(b.interpreter)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(e.dir, key)
	for {
		e.mu.Lock()
		done, busy := e.building[key]
		if !busy {
			done = make(chan struct{})
			e.building[key] = done
		}
		e.mu.Unlock()
		if !busy {
			err := b.ensure(ctx, dir, key)
			e.mu.Lock()
			delete(e.building, key)
			e.mu.Unlock()
			close(done)
			return dir, err
		}
		observer.Step("python environment: waiting for another task that installs the same")
		select {
		case <-done:
		case <-ctx.Done():
			return "", run.Failf(muster.Dependency, "the Python environment was not ready in time: %w", context.Cause(ctx))
		}
	}
}

// Build is Get for the python section of a spec. Its files are read from root.
func (e *Envs) Build(ctx context.Context, p *muster.Python, root *os.Root, observer run.Observer) (string, error) {
	spec, err := ParseSpec(p, func(name string) ([]byte, error) {
		f, err := run.OpenRegularIn(root, filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, run.Failf(muster.Dependency, "%s does not exist in the task's folder: set files to the folder that contains it", name)
		}
		if err != nil {
			return nil, run.Failf(muster.Dependency, "read %s: %w", name, err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxRequirements+1))
		if err == nil && len(b) > maxRequirements {
			err = fmt.Errorf("it is larger than %s", muster.Size(maxRequirements))
		}
		if err != nil {
			return nil, run.Failf(muster.Dependency, "read %s: %w", name, err)
		}
		return b, nil
	})
	if err != nil {
		return "", err
	}
	return e.Get(ctx, spec, observer)
}

// build is the build of one environment.
type build struct {
	*Envs

	uv, interpreter string
	spec            *Spec
	observer        run.Observer
	tmp             string // for uv's files
}

func (e *Envs) newBuild(ctx context.Context, w *Spec, observer run.Observer) (*build, error) {
	uv, err := e.tool.find(ctx, observer)
	if err != nil {
		return nil, err
	}
	interpreter, err := e.findInterpreter(ctx, uv, w.Version, observer)
	if err != nil {
		return nil, err
	}
	return &build{Envs: e, uv: uv, interpreter: interpreter, spec: w, observer: observer}, nil
}

// ensure builds the environment at dir unless it is usable.
func (b *build) ensure(ctx context.Context, dir, key string) error {
	if b.usable(ctx, dir, b.observer) {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(dir, markerFile), now, now) // after an error it only counts as longer unused
		return nil
	}
	begun := time.Now()
	b.prune(begun)
	err := b.install(ctx, dir, func(_ string, in Installed) (string, []byte, error) {
		data, err := json.Marshal(record{Key: key, Installed: in})
		return markerFile, data, err
	})
	if err == nil {
		b.observer.LogLine(fmt.Sprintf("%s ready after %.1f s", b.spec.title(), time.Since(begun).Seconds()))
	}
	return err
}

// Finish returns the name and the content of the file that marks an environment as finished. made is the folder in which it was
// built and checked; its content is not trusted.
type Finish func(made string, in Installed) (name string, data []byte, err error)

// Make builds an environment and replaces dir with it only if all succeeds. Calls for one dir must not overlap.
func (e *Envs) Make(ctx context.Context, w *Spec, dir string, finish Finish, observer run.Observer) error {
	b, err := e.newBuild(ctx, w, observer)
	if err != nil {
		return err
	}
	return b.install(ctx, dir, finish)
}

// install does the work of Make.
func (b *build) install(ctx context.Context, dir string, finish Finish) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return run.Failf(muster.WorkerInternal, "create the folder for Python environments: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), UnfinishedPrefix+filepath.Base(dir)+"-")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "create the folder for a Python environment: %w", err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // prune retries
	b.tmp = tmp
	built := filepath.Join(tmp, "env")
	in, err := b.buildWithRetry(ctx, built)
	if err != nil {
		return err
	}
	if err := writeMarker(tmp, built, in, finish); err != nil {
		return run.Failf(muster.WorkerInternal, "mark the Python environment as finished: %w", err)
	}
	if err := os.Rename(dir, filepath.Join(tmp, "broken")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return run.Failf(muster.WorkerInternal, "remove a broken Python environment: %w", err)
	}
	if err := os.Rename(built, dir); err != nil {
		return run.Failf(muster.WorkerInternal, "move the Python environment to its path: %w", err)
	}
	b.markVerified(dir, time.Now())
	return nil
}

// writeMarker writes the file that finish returns into the environment, built in tmp. It first takes tmp back from the user of
// builds, who can then no longer reach it by its path.
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

// buildWithRetry builds an environment and checks it. If uv's cached packages are damaged, it fetches them again.
func (b *build) buildWithRetry(ctx context.Context, built string) (Installed, error) {
	in, err := b.buildAndCheck(ctx, built)
	if !errors.Is(err, errDamaged) || b.spec.NoCache {
		return in, err
	}
	b.observer.LogLine(b.spec.title() + ": the cached packages are also damaged, fetching them again: " + err.Error())
	if err := b.CleanCache(ctx); err != nil {
		b.log.Warn("removing cached Python packages failed", slog.Any("error", err))
	}
	if err := errors.Join(reclaim(b.tmp), os.RemoveAll(built)); err != nil {
		return Installed{}, run.Failf(muster.WorkerInternal, "remove a damaged Python environment: %w", err)
	}
	retry, spec := *b, *b.spec
	spec.NoCache = true
	retry.spec = &spec
	return retry.buildAndCheck(ctx, built)
}

func (b *build) buildAndCheck(ctx context.Context, built string) (Installed, error) {
	if err := b.run(ctx, built); err != nil {
		return Installed{}, err
	}
	in, err := listInstalled(built)
	if err == nil {
		err = in.Check(ctx, built)
	}
	if err != nil {
		return Installed{}, run.Failf(muster.Dependency, "%s: %w: %w", b.spec.title(), errDamaged, err)
	}
	return in, nil
}

// CheckInterpreter returns an error if the interpreter of an environment does not work.
func (e *Envs) CheckInterpreter(ctx context.Context, dir string) error {
	err := e.tool.runIsolated(ctx, []string{dir}, nil, dir, e.tool.env(), outputHandler{onLine: func(string) {}}, filepath.Join(dir, "bin", "python"), "-c", "import sys; sys.exit(sys.prefix == sys.base_prefix)")
	if err != nil {
		return fmt.Errorf("its interpreter does not work: %w", err)
	}
	return nil
}

// RunScript runs a trusted script with an interpreter and passes each line of its output to logLine.
func (e *Envs) RunScript(ctx context.Context, interpreter, script string, logLine func(line string), args ...string) error {
	return command(ctx, nil, filepath.Dir(interpreter), e.tool.env(), outputHandler{onLine: logLine}, interpreter, append([]string{"-I", "-c", script}, args...)...)
}

// CacheDir returns the folder of uv's cache, "" if the operator set one, which other programs may use.
func (e *Envs) CacheDir() string {
	if os.Getenv("UV_CACHE_DIR") != "" {
		return ""
	}
	return e.tool.cacheDir()
}

// CleanCache empties CacheDir. It waits for the processes that use it.
func (e *Envs) CleanCache(ctx context.Context) error {
	uv, err := e.tool.find(ctx, run.Observer{Step: func(string) {}, LogLine: func(string) {}})
	if err != nil || e.CacheDir() == "" {
		return err
	}
	return e.tool.uv(ctx, uv, func(string) {}, "cache", "clean")
}

// usable reports whether a finished and undamaged environment is at dir. It logs what is wrong with a finished one.
func (e *Envs) usable(ctx context.Context, dir string, observer run.Observer) bool {
	err := e.check(ctx, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
		observer.LogLine(fmt.Sprintf("rebuilding the Python environment: %v", err))
	}
	return err == nil
}

// check returns what is wrong with the environment at dir, fs.ErrNotExist if none is finished there.
func (e *Envs) check(ctx context.Context, dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, markerFile))
	if err != nil {
		return err
	}
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return fmt.Errorf("its %s is damaged: %w", markerFile, err)
	}
	return e.Verify(ctx, dir, &rec.Installed)
}

// Verify returns what is wrong with the finished environment at dir, whose packages are in. Checking the files is slow, so a success is
// valid for recheckFactor times as long as the check took. The interpreter is only checked once.
func (e *Envs) Verify(ctx context.Context, dir string, in *Installed) error {
	e.mu.Lock()
	recheckAt, works := e.checked[dir]
	e.mu.Unlock()
	begun := time.Now()
	if _, err := os.Stat(filepath.Join(dir, "bin", "python")); err == nil && works && begun.Before(recheckAt) {
		return nil
	}
	if err := in.Check(ctx, dir); err != nil {
		return err
	}
	if !works {
		if err := e.CheckInterpreter(ctx, dir); err != nil {
			return err
		}
	}
	e.markVerified(dir, begun)
	return nil
}

// markVerified records a successful check that began at begun.
func (e *Envs) markVerified(dir string, begun time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.checked[dir] = now.Add(recheckFactor * now.Sub(begun))
}

// Forget drops what Verify knows about a removed environment.
func (e *Envs) Forget(dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.checked, dir)
}

// prune removes unfinished builds of earlier incarnations and environments unused for maxUnusedAge. It runs once.
func (e *Envs) prune(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pruned {
		return
	}
	e.pruned = true
	entries, err := os.ReadDir(e.dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(e.dir, entry.Name())
		used := path // a build, or an environment that was never finished
		if _, busy := e.building[entry.Name()]; busy || !e.checked[path].IsZero() {
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
			e.log.Warn("removing an unused Python environment failed", slog.String("folder", path), slog.Any("error", err))
		}
	}
}
