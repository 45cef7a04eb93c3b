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

// findInterpreter returns the path of the Python that uv finds for a version. The path names the full version.
func (e *Envs) findInterpreter(ctx context.Context, uv, version string, observer run.Observer) (string, error) {
	e.mu.Lock()
	known := e.versions[version]
	e.mu.Unlock()
	if _, err := os.Stat(known); known != "" && err == nil {
		return known, nil
	}
	request := version
	if request == "" {
		request = ">=3.9"
	}
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
	e.versions[version] = resolved
	e.mu.Unlock()
	return resolved, nil
}

// run builds the environment at dir.
func (b *build) run(ctx context.Context, dir string) error {
	w := b.spec
	n := len(w.Requirements)
	p := &progress{title: w.title(), observer: b.observer, begun: time.Now(), quiet: w.Prebuilt, packages: PackageCount(n), fetched: map[string]muster.Size{}}
	b.observer.Step(w.title() + ": installing " + PackageCount(n))
	if !p.quiet {
		b.observer.LogLine(fmt.Sprintf("%s: installing %s with uv", w.title(), PackageCount(n)))
	}
	if err := b.runUV(ctx, p, "venv", "--quiet", "--no-project", "--relocatable", "--python", b.interpreter, dir); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	args := []string{"pip", "install", "--no-progress", "--python", filepath.Join(dir, "bin", "python"), "-r", "requirements.txt"}
	if w.Prebuilt {
		args = append(args, "--no-build", "--compile-bytecode")
		p.venv = dir
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
	return b.runUV(ctx, p, args...)
}

// runUV runs uv for a build and reports its progress.
func (b *build) runUV(ctx context.Context, p *progress, args ...string) error {
	diskFull := false
	logLine := func(line string) { //nolint:contextcheck // the ticker that onLine starts ends with the build
		p.onLine(line)
		diskFull = diskFull || strings.Contains(line, "No space left on device") // the exit status does not show it
	}
	var read []string
	if b.spec.Wheels != "" {
		read = append(read, b.spec.Wheels)
	}
	err := b.tool.runBuild(ctx, b.uv, b.tmp, read, outputHandler{logLine, p.setPID}, args...)
	p.ticker.stop()
	if err == nil {
		return nil
	}
	lastLines := p.lastOutput()
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

// PackageCount returns "1 package" or "N packages".
func PackageCount(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}
