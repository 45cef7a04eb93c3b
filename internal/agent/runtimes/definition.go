package runtimes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// definition is the parsed content of a runtime's files.
type definition struct {
	name   string
	python string   // the versions of Python that it works with
	needs  []string // requirements of its modules, from pyproject.toml
	lock   []string // one line for each package, with its hashes; empty for a runtime without packages
}

// Names lists all runtimes.
func (r *Runtimes) Names() []string {
	files, _ := fs.Glob(r.files, "python/*/pyproject.toml") // the pattern is valid
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = path.Base(path.Dir(f))
	}
	return names
}

// CheckNames returns a NotFound error for the first name that is not a runtime.
func (r *Runtimes) CheckNames(names ...string) error {
	all := r.Names()
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		hint := ""
		if near := muster.DidYouMean(name, all); near != "" {
			hint = " (" + near + ")"
		}
		return muster.Errorf(muster.NotFound, "there is no runtime %s%s: use one of %s", name, hint, strings.Join(all, ", "))
	}
	return nil
}

func (r *Runtimes) definition(name string) (*definition, error) {
	if err := r.CheckNames(name); err != nil {
		return nil, err
	}
	d := &definition{name: name}
	project, err := fs.ReadFile(r.files, path.Join("python", name, "pyproject.toml"))
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "runtime %s: %w", name, err)
	}
	if d.python, d.needs, err = parseProject(string(project)); err != nil {
		return nil, muster.Errorf(muster.Internal, "runtime %s: pyproject.toml: %w", name, err)
	}
	lock, err := fs.ReadFile(r.files, path.Join("python", name, "requirements.lock"))
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || len(d.needs) > 0) {
		return nil, muster.Errorf(muster.Internal, "runtime %s: %w", name, err)
	}
	d.lock = parseLock(string(lock))
	return d, nil
}

// The format of Muster's own pyproject.toml files.
var (
	requiresPythonRE = lazyregexp.New(`(?m)^requires-python = "(.+)"$`)
	dependenciesRE   = lazyregexp.New(`(?m)^dependencies = \[((?:\s*"[^"\n]+",?)*)\s*\]$`)
	quotedRE         = lazyregexp.New(`"([^"]+)"`)
)

// parseProject reads requires-python and dependencies of a pyproject.toml.
func parseProject(text string) (python string, needs []string, err error) {
	version, list := requiresPythonRE.Get().FindStringSubmatch(text), dependenciesRE.Get().FindStringSubmatch(text)
	if version == nil || list == nil {
		return "", nil, errors.New("requires-python or dependencies is missing")
	}
	for _, need := range quotedRE.Get().FindAllStringSubmatch(list[1], -1) {
		needs = append(needs, need[1])
	}
	return version[1], needs, nil
}

// parseLock returns one line for each package.
func parseLock(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// maxPython limits the versions of Python to those for which all locked packages have wheels.
const maxPython = ",<3.15"

// key returns a hash of everything that determines the environment of a runtime.
func (d *definition) key(backend, gpu string) string {
	b, _ := json.Marshal(map[string]any{
		"layout": 1, // changes when environments are built differently
		"needs":  d.needs, "lock": d.lock, "python": d.python + maxPython, "wanted": os.Getenv("UV_PYTHON"),
		"platform": runtime.GOOS + "/" + runtime.GOARCH, "backend": backend, "gpu": gpu,
	}) // it cannot fail
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// usesTorch reports whether other builds from PyTorch's own index may be used. Packages that require one build of PyTorch, such as
// vLLM, do not name torch, and get the build of the lock.
func (d *definition) usesTorch() bool {
	return slices.ContainsFunc(d.needs, func(need string) bool { return requirementName(need) == "torch" })
}

// pythonSpec returns the environment to build.
func (d *definition) pythonSpec(backend, wheels string) *python.Spec {
	w := &python.Spec{Version: d.python + maxPython, Requirements: d.lock, Prebuilt: true, TorchBackend: backend, Wheels: wheels}
	if backend == "" {
		return w
	}
	// The builds on PyTorch's index have other dependencies and other hashes.
	w.Requirements, w.Constraints = d.needs, nil
	for _, line := range d.lock {
		switch name := requirementName(line); {
		case strings.HasPrefix(name, "nvidia-"), strings.HasPrefix(name, "cuda-"), name == "triton":
		case name == "torch", strings.HasPrefix(name, "torchvision"), strings.HasPrefix(name, "torchaudio"):
			pinned, _, _ := strings.Cut(line, " --hash=")
			w.Constraints = append(w.Constraints, pinned)
		default:
			w.Constraints = append(w.Constraints, line)
		}
	}
	return w
}

// requirementName returns the normalized package name of a requirement.
func requirementName(need string) string {
	if i := strings.IndexAny(need, "=<>!~;[ "); i >= 0 {
		need = need[:i]
	}
	return strings.ToLower(strings.ReplaceAll(need, "_", "-"))
}

// PyTorch's index of builds for CPUs, CUDA and ROCm, and how long it may take to answer.
const (
	torchIndex   = "https://download.pytorch.org/whl/"
	torchTimeout = 5 * time.Second
)

// torchBackend returns the builds of PyTorch to use, as uv's --torch-backend: "auto" if PyTorch's own index is reachable, "" for the
// builds of the package index.
func (r *Runtimes) torchBackend(ctx context.Context, d *definition, observer run.Observer) string {
	if !d.usesTorch() || runtime.GOOS == "darwin" || r.cfg.Wheels != "" {
		return ""
	}
	if configured := os.Getenv("UV_TORCH_BACKEND"); configured != "" {
		return configured
	}
	err := checkReachable(ctx, torchIndex)
	if err == nil {
		return "auto"
	}
	observer.LogLine("runtime " + d.name + ": PyTorch's own index is unreachable (" + err.Error() + "): using the builds of the package index, which include CUDA and also run on CPUs")
	if gpuVendor() == amd {
		observer.LogLine("runtime " + d.name + ": those builds do not support AMD GPUs: give this machine access to " + torchIndex + " and remove the runtime, or set --python or --wheels")
	}
	return ""
}

// checkReachable returns an error if no server answers at url.
func checkReachable(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, torchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		err = errors.New("it returned " + resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// Makers of GPUs whose builds of PyTorch differ.
const (
	amd    = "amd"
	nvidia = "nvidia"
)

// gpuVendor returns the vendor whose GPU driver is loaded, "" for none.
func gpuVendor() string {
	has := func(path string) bool { _, err := os.Stat(path); return err == nil }
	switch {
	case has("/dev/nvidiactl"), has("/dev/dxg"):
		return nvidia
	case has("/dev/kfd"):
		return amd
	}
	return ""
}
