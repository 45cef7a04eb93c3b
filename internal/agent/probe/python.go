package probe

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Python is an interpreter with its packages.
type Python struct {
	Path     string            `json:"path"`
	Version  string            `json:"version"`           // such as 3.11.7
	Default  bool              `json:"default,omitempty"` // the one that tasks get as python3
	Source   string            `json:"of,omitempty"`      // what installed it, if not the system: pyenv, conda, uv or venv
	Packages map[string]string `json:"packages"`          // versions of packages that jobs ask for, by name
	Torch    string            `json:"torch,omitempty"`   // platform of its torch: cuda 12.1, rocm 6.0, xpu or cpu
}

// UV is the tool that builds environments for tasks.
type UV struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// packages are the distributions to look for.
var packages = []string{
	"torch", "transformers", "diffusers", "vllm", "onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino",
	"tensorflow", "jax", "jaxlib", "scikit-learn", "numpy", "accelerate", "sentence-transformers", "bitsandbytes", "xformers",
	"deepspeed", "lightning", "openvino", "mlx", "llama-cpp-python", "triton",
}

// describeScript is the program with which an interpreter describes itself. It needs only the standard library.
//
//go:embed describe.py
var describeScript string

const (
	maxPythons    = 24
	maxConcurrent = 4 // queries
	slowFactor    = 4 // of the timeout of other tools: an interpreter reads hundreds of files, on a busy machine slowly
)

// pythonCache caches the reports of interpreters: a query takes longer than a check for changes.
type pythonCache struct {
	mu      sync.Mutex
	reports map[string]cachedReport
}

type cachedReport struct {
	fingerprint string // of the files that the report depends on
	report      pythonReport
}

// pythonReport is what describe.py prints.
type pythonReport struct {
	Version      string            `json:"version"`
	Executable   string            `json:"executable"`
	Prefix       string            `json:"prefix"`
	Base         string            `json:"base"` // differs from Prefix in a venv
	Folders      []string          `json:"folders"`
	Packages     map[string]string `json:"packages"`
	TorchVersion string            `json:"torch_version"` // the text of torch/version.py
}

// discover queries all interpreters. The default one, if there is any, is the first.
func (p *pythonCache) discover(ctx context.Context, h *host, data string) (found []Python, notes []string) {
	candidates, dropped := h.interpreters(data)
	if dropped > 0 {
		notes = append(notes, fmt.Sprintf("only the first %d Python interpreters are used, %d are ignored", maxPythons, dropped))
	}
	all := make([]pythonReport, len(candidates))
	errs := make([]error, len(candidates))
	var g errgroup.Group
	g.SetLimit(maxConcurrent)
	for i, c := range candidates {
		g.Go(func() error {
			all[i], errs[i] = p.query(ctx, h, c)
			return nil
		})
	}
	_ = g.Wait() // errs has the errors
	found = []Python{}
	seen := map[string]bool{}
	for i, report := range all {
		switch {
		case errs[i] != nil && candidates[i].mayFail:
		case errs[i] != nil:
			notes = append(notes, fmt.Sprintf("%s is ignored: %v", candidates[i].path, errs[i]))
		case !seen[report.Prefix+"\x00"+report.Version]: // it may have several names
			seen[report.Prefix+"\x00"+report.Version] = true
			found = append(found, describePython(candidates[i], report))
		}
	}
	p.prune(candidates)
	return found, notes
}

func describePython(c interpreter, report pythonReport) Python {
	one := Python{Path: cmp.Or(report.Executable, c.path), Version: report.Version, Default: c.isDefault, Source: c.source, Packages: report.Packages}
	if one.Packages == nil {
		one.Packages = map[string]string{}
	}
	if one.Source == "" && report.Base != report.Prefix {
		one.Source = "venv"
	}
	if version, ok := one.Packages["torch"]; ok {
		one.Torch = torchBuild(report.TorchVersion, version)
	}
	return one
}

// query queries one interpreter, unless its cached report is still valid.
func (p *pythonCache) query(ctx context.Context, h *host, c interpreter) (pythonReport, error) {
	p.mu.Lock()
	cached, ok := p.reports[c.path]
	p.mu.Unlock()
	if ok && !c.isDefault && cached.fingerprint == fingerprint(append(cached.report.Folders, c.path)...) { // the default may change without a change of the file
		return cached.report, nil
	}
	out, err := tool.OutputWithin(ctx, slowFactor*h.toolTimeout, c.path, append([]string{"-I", "-c", describeScript}, packages...)...)
	if errors.Is(err, tool.ErrTimeout) && ok {
		return cached.report, nil // the machine is busy
	}
	if err != nil {
		return pythonReport{}, err
	}
	report, err := parseReport([]byte(out))
	if err != nil {
		return pythonReport{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reports == nil {
		p.reports = map[string]cachedReport{}
	}
	p.reports[c.path] = cachedReport{fingerprint(append(report.Folders, c.path)...), report}
	return report, nil
}

func (p *pythonCache) prune(current []interpreter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path := range p.reports {
		if !slices.ContainsFunc(current, func(c interpreter) bool { return c.path == path }) {
			delete(p.reports, path)
		}
	}
}

// packageDirs returns the interpreters' package directories, which change when a package is installed.
func (p *pythonCache) packageDirs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, t := range p.reports {
		all = append(all, t.report.Folders...)
	}
	return all
}

// fingerprint returns a text that differs after one of the files was changed, replaced, created or removed.
func fingerprint(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
		} else {
			b.WriteString("-;")
		}
	}
	return b.String()
}

// parseReport parses the last line that describe.py printed: startup code of an interpreter may print more before it.
func parseReport(out []byte) (pythonReport, error) {
	text := strings.TrimSpace(string(out))
	last := text[strings.LastIndexByte(text, '\n')+1:]
	var report pythonReport
	if err := json.Unmarshal([]byte(last), &report); err != nil {
		return pythonReport{}, errors.New("it does not answer like Python 3")
	}
	if !pythonVersion.Get().MatchString(report.Version) {
		return pythonReport{}, fmt.Errorf("it reports the version %q", report.Version)
	}
	return report, nil
}

var pythonVersion = lazyregexp.New(`^3\.\d{1,3}\.\d{1,3}$`)

// torchPlatform matches the value of a platform in torch/version.py, in the forms of all releases since 1.8; it is a string or None.
var torchPlatform = lazyregexp.New(`(?m)^(cuda|hip|xpu)\b[^=\n]*=\s*['"](\d+(?:\.\d+)*)[^'"\n]*['"]`)

// torchBuild returns the platform of a torch, by its version.py or else by the suffix of its version, such as +cu121.
func torchBuild(text, version string) string {
	if m := torchPlatform.Get().FindStringSubmatch(text); m != nil {
		switch m[1] {
		case "xpu":
			return "xpu" // its number is a date
		case "hip":
			return "rocm " + majorMinor(m[2])
		default:
			return m[1] + " " + majorMinor(m[2])
		}
	}
	_, build, _ := strings.Cut(version, "+")
	switch digits := strings.TrimPrefix(build, "cu"); {
	case digits != build && len(digits) >= 3 && strings.Trim(digits, "0123456789") == "":
		return "cuda " + digits[:len(digits)-1] + "." + digits[len(digits)-1:]
	case strings.HasPrefix(build, "rocm"):
		return strings.TrimSpace("rocm " + majorMinor(strings.TrimPrefix(build, "rocm")))
	case strings.HasPrefix(build, "xpu"):
		return "xpu"
	case text != "" || strings.HasPrefix(build, "cpu"):
		return "cpu"
	default:
		return ""
	}
}

// majorMinor shortens 12.1.105 to 12.1.
func majorMinor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func (h *host) uv(ctx context.Context, data string) *UV {
	u := &UV{Path: lookPath(cmp.Or(h.env("MUSTER_UV"), "uv"))}
	if own := filepath.Join(data, "tools", "uv", "bin", "uv"); u.Path == "" && !modTime(own).IsZero() {
		u.Path = own // downloaded by the worker
	}
	if u.Path == "" {
		return nil
	}
	out, err := h.run(ctx, u.Path, "--version")
	if f := strings.Fields(string(out)); err == nil && len(f) > 1 { // uv 0.5.11 (…)
		u.Version = f[1]
	}
	return u
}

// modTime returns the time of a file's last change, or the zero time if it does not exist.
func modTime(name string) time.Time {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
