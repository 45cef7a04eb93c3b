package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/agent/runtimes"
)

// lookPath is the path of a program, "" if it is not on the PATH.
func lookPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// python looks for the interpreter that tasks get.
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
	if path := lookPath("python3"); path != "" {
		return single("python", Problem, "install it anew, or put another one first on the PATH of the worker", "python3 at %s does not work or is not reached by tasks: %s", path, strings.Join(broken, "; "))
	}
	return single("python", Warning, "install it: `sudo apt-get install python3`, `sudo dnf install python3` or what this system has; uv fetches one for tasks that name a version", "no python3 is on the PATH: scripts in Python that name no version cannot run")
}

// venvModule looks for those that distributions leave out.
func (r *inspection) venvModule(ctx context.Context, path string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	err := toolCommand(ctx, path, "-I", "-c", "import venv, ensurepip").Run()
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return single("venv", Note, "on Debian and Ubuntu: `sudo apt-get install python3-venv`", "%s cannot make environments by itself; tasks that have requirements get theirs from uv", path)
}

// toolCommand makes a command that ends with ctx, with all that holds its output.
func toolCommand(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MUSTER_") }) // which has tokens in it
	cmd.WaitDelay = time.Second
	return cmd
}

// uv looks for the tool that builds environments.
func (r *inspection) uv(ctx context.Context) []Finding {
	fetched := filepath.Join(r.Data, "tools", "uv", "bin", "uv")
	u := r.facts().UV
	configured := os.Getenv("MUSTER_UV")
	switch {
	case u == nil && configured != "":
		return single("uv", Problem, "install it there, or take MUSTER_UV away", "MUSTER_UV names %s, where no uv is", configured)
	case u == nil:
		return r.missingUV(ctx)
	case u.Version == "" && u.Path == fetched:
		f := newFinding("uv", Problem, "`rm -r "+filepath.Dir(filepath.Dir(fetched))+"`: a worker fetches another one", "uv at %s, which the worker fetched, does not work", fetched)
		f.repair = r.fetchUV("fetch uv anew into " + filepath.Dir(filepath.Dir(fetched)))
		return []Finding{f}
	case u.Version == "":
		return single("uv", Problem, "install it anew: https://docs.astral.sh/uv", "uv at %s does not work", u.Path)
	}
	return single("uv", OK, "", "uv %s, at %s", u.Version, u.Path)
}

// missingUV says whether a worker could fetch it.
func (r *inspection) missingUV(ctx context.Context) []Finding {
	const fix = "install uv (https://docs.astral.sh/uv), or name it in MUSTER_UV"
	path := lookPath("python3")
	if path == "" {
		return single("uv", Warning, fix, "there is no uv, and no python3 with which a worker could fetch it: tasks that have requirements fail here")
	}
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	if err := toolCommand(ctx, path, "-I", "-m", "pip", "--version").Run(); err != nil && ctx.Err() == nil {
		return single("uv", Warning, fix+"; or let python3 have pip: `sudo apt-get install python3-pip`", "there is no uv, and no pip with which a worker could fetch it: tasks that have requirements fail here")
	}
	f := newFinding("uv", Note, "`muster doctor --fix` fetches it now", "there is no uv yet: the worker fetches it for the first task that has requirements")
	f.repair = r.fetchUV("fetch uv into " + filepath.Join(r.Data, "tools", "uv"))
	return []Finding{f}
}

// fetchTimeout is how long fetching uv may take.
const fetchTimeout = 3 * time.Minute

// fetchUV has uv fetched as a worker does, with pip from the package index that it is set to.
func (r *inspection) fetchUV(description string) *repair {
	data := r.Data
	return &repair{description: description, run: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		if err := os.RemoveAll(filepath.Join(data, "tools", "uv")); err != nil {
			return err
		}
		envs, err := python.New(&run.Deps{Dir: data}, false)
		if err != nil {
			return err
		}
		discard := func(string) {}
		_, err = envs.UV(ctx, run.Observer{Step: discard, LogLine: discard})
		return err
	}}
}

// runtimes looks for those that the worker made and that are broken since.
func (r *inspection) runtimes(ctx context.Context) []Finding {
	rts, err := runtimes.New(runtimes.Config{Dir: r.Data, Standalone: true})
	if err != nil {
		return single("runtimes", Problem, "", "what the worker made cannot be looked at: %v", err)
	}
	all, err := rts.List(ctx)
	if err != nil {
		return single("runtimes", Problem, "let this user read the folder", "%v", err)
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
		return single("runtimes", OK, "", "runtimes that are made and whole: %d", ready)
	}
	return list
}

// index asks the package index, if that is wanted.
func (r *inspection) index(ctx context.Context) []Finding {
	if !r.Online {
		return nil
	}
	index := os.Getenv("UV_DEFAULT_INDEX")
	if index == "" {
		index = os.Getenv("PIP_INDEX_URL")
	}
	if index == "" {
		index = "https://pypi.org/simple"
	}
	const fix = "let this machine reach it, or name another one in PIP_INDEX_URL for the worker; a proxy is taken from HTTPS_PROXY"
	if path, ok := strings.CutPrefix(index, "file://"); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { //nolint:gosec // the operator names it
			return single("index", Problem, fix, "the package index %s is not there", index)
		}
		return single("index", OK, "", "the package index is %s", index)
	}
	h := &http.Client{Timeout: 2 * r.effectiveTimeouts().step}
	start := time.Now()
	resp, err := httpGet(ctx, h, strings.TrimSuffix(index, "/")+"/uv/")
	switch {
	case err != nil:
		return single("index", Problem, fix, "the package index %s cannot be reached: %s", redactURL(index), rootCause(err))
	case resp.code != http.StatusOK:
		return single("index", Problem, fix, "the package index %s answers %s", redactURL(index), resp.status)
	}
	return single("index", OK, "", "the package index %s answers in %s", redactURL(index), formatMillis(time.Since(start)))
}
