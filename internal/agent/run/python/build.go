package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// interpreter returns what identifies the Python that a version means here: its
// path and its full version.
func (e *Envs) interpreter(ctx context.Context, uv, version string, watch run.Watch) (string, error) {
	e.mu.Lock()
	known := e.versions[version]
	e.mu.Unlock()
	if _, err := os.Stat(known); known != "" && err == nil {
		return known, nil
	}
	ask := version
	if ask == "" {
		ask = ">=3.9"
	}
	var path string
	find := func(line string) {
		if filepath.IsAbs(line) {
			path = line
		}
	}
	err := e.tool.uv(ctx, uv, find, "python", "find", "--no-project", ask)
	if err != nil || path == "" {
		watch.Step("python environment: fetching Python " + version)
		if err := e.tool.uv(ctx, uv, watch.Say, "python", "install", ask); err != nil {
			return "", run.Failf(muster.Dependency, "this worker has no Python %s and cannot fetch it: %w", ask, err)
		}
		if err := e.tool.uv(ctx, uv, find, "python", "find", "--no-project", ask); err != nil || path == "" {
			return "", run.Failf(muster.Dependency, "uv finds no Python %s on this worker: %w", ask, err)
		}
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", run.Failf(muster.Dependency, "the Python at %s is not usable: %w", path, err)
	}
	e.mu.Lock()
	e.versions[version] = resolved
	e.mu.Unlock()
	return resolved, nil
}

// build makes the environment at dir, with its files for uv in tmp.
func (e *Envs) build(ctx context.Context, uv, interpreter, tmp, dir string, w *Want, watch run.Watch) error {
	n := len(w.Requirements)
	p := &progress{title: w.title(), watch: watch, begun: time.Now(), quiet: w.Ready, packages: Packages(n), fetched: map[string]muster.Size{}}
	watch.Step(w.title() + ": installing " + Packages(n))
	if !p.quiet {
		watch.Say(fmt.Sprintf("%s: installing %s with uv", w.title(), Packages(n)))
	}
	var read []string
	if err := e.step(ctx, uv, tmp, read, p, "venv", "--quiet", "--no-project", "--relocatable", "--python", interpreter, dir); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	args := []string{"pip", "install", "--no-progress", "--python", filepath.Join(dir, "bin", "python"), "-r", "requirements.txt"}
	if w.Ready {
		args = append(args, "--no-build", "--compile-bytecode")
		p.env = dir
	}
	if w.Fresh {
		args = append(args, "--no-cache")
	}
	if w.Backend != "" {
		args = append(args, "--torch-backend", w.Backend)
	}
	if w.Wheels != "" {
		read = append(read, w.Wheels)
		args = append(args, "--offline", "--no-index", "--find-links", w.Wheels)
	}
	files := map[string]string{"requirements.txt": w.text()}
	if len(w.Constraints) > 0 {
		files["constraints.txt"] = strings.Join(w.Constraints, "\n") + "\n"
		args = append(args, "-c", "constraints.txt")
	}
	folder, err := os.OpenRoot(tmp) // packages may have run there
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the requirements cannot be written for uv: %w", err)
	}
	defer func() { _ = folder.Close() }()
	for name, text := range files {
		if err := run.WriteIn(folder, name, []byte(text)); err != nil {
			return run.Failf(muster.WorkerInternal, "the requirements cannot be written for uv: %w", err)
		}
	}
	return e.step(ctx, uv, tmp, read, p, args...)
}

// step runs uv for a build, passing on what it says.
func (e *Envs) step(ctx context.Context, uv, tmp string, read []string, p *progress, args ...string) error {
	full := false
	say := func(line string) {
		p.line(line)
		full = full || strings.Contains(line, "No space left on device") // which no exit status tells
	}
	err := e.tool.build(ctx, uv, tmp, read, listener{say, p.began}, args...)
	p.telling.end()
	if err == nil {
		return nil
	}
	last := p.failed()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return run.Failf(muster.Dependency, "the %s was not built in %s", p.title, time.Since(p.begun).Round(time.Second))
	case full:
		return run.Failf(muster.DiskFull, "the %s cannot be built: the disk of the worker's data dir is full, make space on it", p.title)
	case last == "":
		return run.Failf(muster.Dependency, "the %s cannot be built: uv %s: %w", p.title, args[0], err)
	default:
		return run.Failf(muster.Dependency, "the %s cannot be built: %s", p.title, last)
	}
}

// Packages says how many, in words.
func Packages(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}
