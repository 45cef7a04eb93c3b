package python

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// minVersion is the version of a spec that names none.
const minVersion = ">=3.9"

// findInterpreter returns the path of the Python that uv finds for a version. The path names the full version.
func (e *Envs) findInterpreter(ctx context.Context, uv, version string, observer run.Observer) (string, error) {
	e.mu.Lock()
	known := e.interpreters[version]
	e.mu.Unlock()
	if _, err := os.Stat(known); known != "" && err == nil {
		return known, nil
	}
	request := cmp.Or(version, minVersion)
	var path string
	onLine := func(line string) {
		if filepath.IsAbs(line) {
			path = line
		}
	}
	err := e.tool.uv(ctx, uv, onLine, "python", "find", "--no-project", request)
	if err != nil || path == "" {
		observer.Step("python environment: fetching Python " + version)
		if err := e.tool.uv(ctx, uv, observer.LogLine, "python", "install", request); err != nil {
			return "", run.Failf(muster.Dependency, "fetch Python %s, which this worker does not have: %w", request, err)
		}
		if err := e.tool.uv(ctx, uv, onLine, "python", "find", "--no-project", request); err != nil || path == "" {
			return "", run.Failf(muster.Dependency, "uv does not find Python %s on this worker: %w", request, err)
		}
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", run.Failf(muster.Dependency, "find the Python that %s links to: %w", path, err)
	}
	e.mu.Lock()
	e.interpreters[version] = resolved
	e.mu.Unlock()
	return resolved, nil
}

// The folders of a build in its temporary folder.
const (
	envFolder   = "python" // the environment; in a container it is below imageRoot while it is built and when it is used
	filesFolder = "files"  // the task's files
)

type build struct {
	*Envs

	title    string
	spec     *Spec
	observer run.Observer

	uv, interpreter string
	tmp             string // for uv's files
}

// install builds an environment and moves it to its path only if all succeeds.
func (b *build) install(ctx context.Context, name string) (*record, error) {
	var err error
	if b.uv, err = b.tool.find(ctx, b.observer); err != nil {
		return nil, err
	}
	if b.spec.Image != "" {
		b.interpreter = cmp.Or(b.spec.Version, minVersion)
	} else if b.interpreter, err = b.findInterpreter(ctx, b.uv, b.spec.Version, b.observer); err != nil {
		return nil, err
	}
	dir := b.Path(name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "create the folder for Python environments: %w", err)
	}
	if b.tmp, err = os.MkdirTemp(filepath.Dir(dir), tempPrefix+name+"-"); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "create the folder for a Python environment: %w", err)
	}
	defer os.RemoveAll(b.tmp) //nolint:errcheck // sweep retries
	built := filepath.Join(b.tmp, envFolder)
	rec, err := b.runWithRetry(ctx, built)
	if err != nil {
		return nil, err
	}
	if err := writeMarker(b.tmp, built, rec); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "mark the Python environment as finished: %w", err)
	}
	if err := os.Rename(dir, filepath.Join(b.tmp, "broken")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, run.Failf(muster.WorkerInternal, "remove a broken Python environment: %w", err)
	}
	if err := os.Rename(built, dir); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "move the Python environment to its path: %w", err)
	}
	return rec, nil
}

// writeMarker writes the record of the environment that was built in tmp; the content of both folders is not trusted. It first takes
// tmp back from the user of builds, who can then no longer reach it by its path.
func writeMarker(tmp, built string, rec *record) error {
	if err := reclaim(tmp); err != nil {
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
	if rec.Size, err = diskSize(built); err != nil {
		return err
	}
	rec.Built = muster.NewTime(time.Now())
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return run.ReplaceFile(folder, filepath.Join(base, markerFile), append(data, '\n'))
}

// runWithRetry builds an environment and checks it. If uv's cached packages are damaged, it fetches them again.
func (b *build) runWithRetry(ctx context.Context, built string) (*record, error) {
	rec, err := b.runAndCheck(ctx, built)
	if !errors.Is(err, errDamaged) || b.spec.NoCache {
		return rec, err
	}
	b.observer.LogLine(b.title + ": the cached packages are also damaged, fetching them again: " + err.Error())
	b.cleanCacheOf(ctx, b.spec)
	if err := errors.Join(reclaim(b.tmp), os.RemoveAll(built)); err != nil {
		return nil, run.Failf(muster.WorkerInternal, "remove a damaged Python environment: %w", err)
	}
	retry, spec := *b, *b.spec
	spec.NoCache = true
	retry.spec = &spec
	return retry.runAndCheck(ctx, built)
}

func (b *build) runAndCheck(ctx context.Context, built string) (*record, error) {
	if err := b.run(ctx, built); err != nil {
		return nil, err
	}
	rec := &record{Image: b.spec.Image, Local: b.spec.Files != ""}
	err := rec.list(built)
	if err == nil {
		err = rec.checkFiles(ctx, built)
	}
	if err != nil {
		return nil, run.Failf(muster.Dependency, "%s: %w: %w", b.title, errDamaged, err)
	}
	return rec, nil
}

func (b *build) run(ctx context.Context, dir string) error {
	w := b.spec
	what := packageCount(len(w.Requirements))
	if w.Source != nil {
		what = "the project"
	}
	p := &progress{title: b.title, observer: b.observer, begun: time.Now(), prebuilt: w.Prebuilt, packages: what, fetched: map[string]muster.Size{}}
	b.observer.Step(b.title + ": installing " + what)
	if !p.prebuilt {
		b.observer.LogLine(fmt.Sprintf("%s: installing %s with uv", b.title, what))
	}
	if err := b.fetchFiles(ctx); err != nil {
		return err
	}
	if err := b.runUV(ctx, p, nil, "venv", "--quiet", "--no-project", "--relocatable", "--python", b.interpreter, b.seen(dir)); err != nil {
		return err
	}
	if w.Source != nil {
		if err := b.syncProject(ctx, p, dir); err != nil {
			return err
		}
	}
	if len(w.Requirements) == 0 {
		return nil
	}
	args := []string{"pip", "install", "--no-progress", "--python", b.seen(InterpreterPath(dir)), "-r", "requirements.txt"}
	if w.Prebuilt {
		args = append(args, "--no-build", "--compile-bytecode")
	}
	if w.NoCache {
		args = append(args, "--no-cache")
	}
	if w.TorchBackend != "" {
		args = append(args, "--torch-backend", w.TorchBackend)
	}
	if w.Wheels != "" {
		args = append(args, "--offline", "--no-index", "--find-links", w.Wheels)
	}
	files := map[string]string{"requirements.txt": w.requirementsTxt()}
	if len(w.Constraints) > 0 {
		files["constraints.txt"] = strings.Join(w.Constraints, "\n") + "\n"
		args = append(args, "-c", "constraints.txt")
	}
	folder, err := os.OpenRoot(b.tmp) // code of packages may have run there
	if err != nil {
		return run.Failf(muster.WorkerInternal, "write the requirements for uv: %w", err)
	}
	defer func() { _ = folder.Close() }()
	for name, text := range files {
		if err := run.ReplaceFile(folder, name, []byte(text)); err != nil {
			return run.Failf(muster.WorkerInternal, "write the requirements for uv: %w", err)
		}
	}
	return b.runUV(ctx, p, nil, args...)
}

// runUV runs uv for a build, with additional environment entries, and reports its progress.
func (b *build) runUV(ctx context.Context, p *progress, env []string, args ...string) error {
	diskFull := false
	logLine := func(line string) {
		p.onLine(line)
		diskFull = diskFull || strings.Contains(line, "No space left on device") // the exit status does not show it
	}
	var repeat sync.WaitGroup
	repeatCtx, stop := context.WithCancel(ctx)
	repeat.Go(func() { p.repeat(repeatCtx) })
	err := b.execUV(ctx, env, outputHandler{logLine, p.setPID}, args...)
	stop()
	repeat.Wait()
	if err == nil {
		return nil
	}
	lastLines := p.lastOutput()
	if b.spec.Image != "" {
		if err := b.imageError(err, lastLines); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return run.Failf(muster.Dependency, "building the %s took longer than %s", p.title, time.Since(p.begun).Round(time.Second))
	case diskFull:
		return run.Failf(muster.DiskFull, "cannot build the %s: the disk of the worker's data dir is full: free space on it", p.title)
	case lastLines == "":
		return run.Failf(muster.Dependency, "cannot build the %s: uv %s: %w", p.title, args[0], err)
	default:
		return run.Failf(muster.Dependency, "cannot build the %s: %s", p.title, lastLines)
	}
}

func packageCount(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}

// The output of uv while it installs. It names only the larger downloads.
var (
	resolvedRE    = lazyregexp.New(`^Resolved (\d+) packages?`)
	downloadingRE = lazyregexp.New(`^\s*Downloading (\S+) \(([0-9.]+ ?[A-Za-z]+)\)`)
	downloadedRE  = lazyregexp.New(`^\s*Downloaded (\S+)`)
	preparedRE    = lazyregexp.New(`^Prepared \d+ packages?`)
	installedRE   = lazyregexp.New(`^Installed \d+ packages?`)
)

// The last lines of a failed uv that go into the error, and into the task's log.
const (
	maxErrorLines = 5
	maxTailLines  = 50
)

// progress converts the output of uv to steps.
type progress struct {
	title    string
	observer run.Observer
	begun    time.Time
	prebuilt bool // modules are compiled at the end, and the log gets uv's output only if it fails

	mu          sync.Mutex
	tail        []string
	packages    string                 // see packageCount
	pid         int                    // of uv, 0 before it runs
	fetched     map[string]muster.Size // running downloads, by name
	done, total muster.Size
}

func (p *progress) setPID(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *progress) onLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasPrefix(line, "Using Python ") { // never the cause of a failure
		p.tail = append(p.tail, strings.TrimRight(line, " \r"))
		p.tail = p.tail[max(0, len(p.tail)-maxTailLines):]
	}
	if !p.prebuilt {
		p.observer.LogLine("uv: " + line)
	}
	if m := resolvedRE.Get().FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		clear(p.fetched)           // downloads before this line are metadata for the resolver
		p.packages = packageCount(n)
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if m := downloadingRE.Get().FindStringSubmatch(line); m != nil {
		if size, err := muster.ParseSize(m[2]); err == nil {
			p.fetched[m[1]] = size
			p.total += size
			p.reportDownload()
		}
	} else if m := downloadedRE.Get().FindStringSubmatch(line); m != nil {
		p.done += p.fetched[m[1]]
		delete(p.fetched, m[1])
	} else if preparedRE.Get().MatchString(line) {
		clear(p.fetched)
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if installedRE.Get().MatchString(line) && p.prebuilt {
		p.observer.Step(p.title + ": compiling modules")
	}
}

// lastOutput returns the last lines of uv's output in one line. If the log does not have them, it gets more of them.
func (p *progress) lastOutput() string {
	if p.prebuilt {
		for _, line := range p.tail {
			p.observer.LogLine("uv: " + line)
		}
	}
	last := slices.Clone(p.tail[max(0, len(p.tail)-maxErrorLines):])
	for i := range last {
		last[i] = strings.TrimSpace(last[i])
	}
	return strings.Join(last, " / ")
}

// reportDownload reports the finished downloads, if some are running. Large packages are fetched concurrently and finish last, so it
// includes the bytes that uv has written. The caller holds mu.
func (p *progress) reportDownload() {
	if len(p.fetched) == 0 {
		return
	}
	text := fmt.Sprintf("%s: fetching %s, %d%% of %s", p.title, p.packages, 100*p.done/max(1, p.total), p.total)
	if _, n := procfs.IO(p.pid); n > 0 {
		text += ", " + n.String() + " unpacked"
	}
	p.observer.Step(text)
}

const reportInterval = time.Second

// repeat reports running downloads until ctx ends.
func (p *progress) repeat(ctx context.Context) {
	for backoff.Sleep(ctx, reportInterval) == nil {
		p.mu.Lock()
		p.reportDownload()
		p.mu.Unlock()
	}
}
