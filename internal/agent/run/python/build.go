package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// lastWords is how many lines of a failed uv a task's failure tells.
const lastWords = 5

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
	err := e.tool.uv(ctx, uv, "", find, "python", "find", "--no-project", ask)
	if err != nil || path == "" {
		watch.Step("python environment: fetching Python " + version)
		if err := e.tool.uv(ctx, uv, "", watch.Say, "python", "install", ask); err != nil {
			return "", run.Failf(muster.Dependency, "this worker has no Python %s and cannot fetch it: %w", ask, err)
		}
		if err := e.tool.uv(ctx, uv, "", find, "python", "find", "--no-project", ask); err != nil || path == "" {
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
	watch.Step(installing(n))
	watch.Say(fmt.Sprintf("python environment: installing %s with uv", packages(n)))
	if err := e.step(ctx, uv, tmp, watch, "venv", "--quiet", "--no-project", "--relocatable", "--python", interpreter, dir); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	args := []string{"pip", "install", "--no-progress", "--python", filepath.Join(dir, "bin", "python"), "-r", "requirements.txt"}
	files := map[string]string{"requirements.txt": w.text()}
	if len(w.Constraints) > 0 {
		files["constraints.txt"] = strings.Join(w.Constraints, "\n") + "\n"
		args = append(args, "-c", "constraints.txt")
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o600); err != nil {
			return run.Failf(muster.WorkerInternal, "the requirements cannot be written for uv: %w", err)
		}
	}
	return e.step(ctx, uv, tmp, watch, args...)
}

// step runs uv for a build, passing on what it says.
func (e *Envs) step(ctx context.Context, uv, tmp string, watch run.Watch, args ...string) error {
	var last []string
	resolved := regexp.MustCompile(`^Resolved (\d+) packages?`)
	say := func(line string) {
		watch.Say("uv: " + line)
		if m := resolved.FindStringSubmatch(line); m != nil {
			watch.Step("python environment: installing " + m[1] + " packages")
		}
		if last = append(last, strings.TrimSpace(line)); len(last) > lastWords {
			last = last[1:]
		}
	}
	err := e.tool.build(ctx, uv, tmp, say, args...)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return run.Failf(muster.Dependency, "the Python environment was not built in %s", buildTimeout)
	case len(last) == 0:
		return run.Failf(muster.Dependency, "the Python environment cannot be built: uv %s: %w", args[0], err)
	default:
		return run.Failf(muster.Dependency, "the Python environment cannot be built: %s", strings.Join(last, " / "))
	}
}

func installing(n int) string { return "python environment: installing " + packages(n) }

func packages(n int) string {
	if n == 1 {
		return "1 package"
	}
	return fmt.Sprintf("%d packages", n)
}
