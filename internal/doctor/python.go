package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/runtimes"
	"github.com/muster-dev/muster/internal/cli/term"
)

func (r *inspection) python(ctx context.Context) []Finding {
	var broken []string
	for _, p := range r.facts().Python {
		if p.Default {
			return append(single("python", OK, "", "python3 is %s, at %s", p.Version, p.Path), r.venvModule(ctx, p.Path)...)
		}
	}
	for _, note := range r.facts().Notes {
		if strings.Contains(strings.ToLower(note), "python") {
			broken = append(broken, note)
		}
	}
	if path, err := exec.LookPath("python3"); err == nil {
		return single("python", Problem, "install it again, or put another one first on the PATH of the worker", "python3 at %s does not work or is not reachable for tasks: %s", path, strings.Join(broken, "; "))
	}
	return single("python", Warning, "install it: `sudo apt-get install python3`, `sudo dnf install python3` or the like; uv installs one for tasks that name a version", "no python3 is on the PATH: Python scripts that name no version cannot run")
}

// venvModule checks for modules that distributions package separately.
func (r *inspection) venvModule(ctx context.Context, path string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	if _, err := tool.Output(ctx, path, "-I", "-c", "import venv, ensurepip"); err == nil || ctx.Err() != nil {
		return nil
	}
	return single("venv", Note, "on Debian and Ubuntu: `sudo apt-get install python3-venv`", "%s cannot create environments; tasks with requirements get theirs from uv", path)
}

func (r *inspection) uv(ctx context.Context) []Finding {
	fetched := filepath.Join(r.Data, "tools", "uv", "bin", "uv")
	u := r.facts().UV
	configured := os.Getenv("MUSTER_UV")
	switch {
	case u == nil && configured != "":
		return single("uv", Problem, "install it there, or unset MUSTER_UV", "MUSTER_UV is %s, where uv is not installed", configured)
	case u == nil:
		return r.missingUV(ctx)
	case u.Version == "" && u.Path == fetched:
		return single("uv", Problem, "`rm -r "+filepath.Dir(filepath.Dir(fetched))+"`: the worker downloads another one", "uv at %s, which the worker downloaded, does not work", fetched)
	case u.Version == "":
		return single("uv", Problem, "install it again: https://docs.astral.sh/uv", "uv at %s does not work", u.Path)
	}
	return single("uv", OK, "", "uv %s, at %s", u.Version, u.Path)
}

// missingUV checks whether a worker could download uv.
func (r *inspection) missingUV(ctx context.Context) []Finding {
	const fix = "install uv (https://docs.astral.sh/uv), or set MUSTER_UV to it"
	path, err := exec.LookPath("python3")
	if err != nil {
		return single("uv", Warning, fix, "uv is not installed, and there is no python3 to download it with: tasks with requirements fail here, and most AI kinds are not offered")
	}
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	if _, err := tool.Output(ctx, path, "-I", "-m", "pip", "--version"); err != nil && ctx.Err() == nil {
		return single("uv", Warning, fix+"; or install pip: `sudo apt-get install python3-pip`", "uv is not installed, and there is no pip to download it with: tasks with requirements fail here, and most AI kinds are not offered")
	}
	return single("uv", Note, "", "uv is not installed yet: the worker downloads it for the first task with requirements")
}

func (r *inspection) runtimes(ctx context.Context) []Finding {
	rts, err := runtimes.New(runtimes.Config{Dir: r.Data, Standalone: true})
	if err != nil {
		return single("runtimes", Problem, "", "cannot check the worker's runtimes: %v", err)
	}
	all, err := rts.List(ctx)
	if err != nil {
		return single("runtimes", Problem, "give this user permission to read the directory", "%v", err)
	}
	var list []Finding
	ready := 0
	for i := range all {
		e := &all[i]
		if e.State == runtimes.Broken {
			list = append(list, newFinding("runtimes", Warning, "`muster runtime check --fix "+e.Name+"`; the worker does so for the next task that needs it", "runtime %s is broken: %s", e.Name, e.Reason))
		}
		if e.State == runtimes.Ready {
			ready++
		}
	}
	if len(list) == 0 && ready > 0 {
		return single("runtimes", OK, "", "%s ready", term.Plural(ready, "runtime"))
	}
	return list
}

// index checks the package index with --online.
func (r *inspection) index(ctx context.Context) []Finding {
	if !r.Online {
		return nil
	}
	index := cmp.Or(os.Getenv("UV_DEFAULT_INDEX"), os.Getenv("PIP_INDEX_URL"), "https://pypi.org/simple")
	const fix = "let this machine reach it, or set PIP_INDEX_URL to another one for the worker; HTTPS_PROXY sets a proxy"
	if path, ok := strings.CutPrefix(index, "file://"); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // the operator names it
			return single("index", Problem, fix, "the package index %s does not exist", index)
		}
		return single("index", OK, "", "the package index is %s", index)
	}
	h := &http.Client{Timeout: 2 * r.effectiveTimeouts().step}
	start := time.Now()
	resp, err := httpGet(ctx, h, "", strings.TrimSuffix(index, "/")+"/uv/")
	switch {
	case err != nil:
		return single("index", Problem, fix, "cannot reach the package index %s: %s", redactURL(index), rootCause(err))
	case resp.StatusCode != http.StatusOK:
		return single("index", Problem, fix, "the package index %s answers %s", redactURL(index), resp.Status)
	}
	return single("index", OK, "", "the package index %s answers in %s", redactURL(index), formatMillis(time.Since(start)))
}
