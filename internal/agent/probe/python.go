package probe

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Python is an interpreter and what is installed for it.
type Python struct {
	Path     string            `json:"path"`
	Version  string            `json:"version"`           // such as 3.11.7
	Default  bool              `json:"default,omitempty"` // what a task gets that runs python3
	Of       string            `json:"of,omitempty"`      // who installed it, if not the system: pyenv, conda, uv or venv
	Packages map[string]string `json:"packages"`          // versions of those that jobs ask for, by name
	Torch    string            `json:"torch,omitempty"`   // what its torch computes on: cuda 12.1, rocm 6.0, xpu or cpu
}

// UV is the tool that builds environments for tasks.
type UV struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
}

// packages are the distributions that are looked for.
var packages = []string{
	"torch", "transformers", "diffusers", "vllm", "onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino",
	"tensorflow", "jax", "jaxlib", "scikit-learn", "numpy", "accelerate", "sentence-transformers", "bitsandbytes", "xformers",
	"deepspeed", "lightning", "openvino", "mlx", "llama-cpp-python", "triton",
}

// describe is the program that an interpreter runs to tell of itself. It imports
// nothing but the standard library.
//
//go:embed describe.py
var describe string

const maxPythons = 24

// pythons remembers what interpreters told, since asking one takes longer than
// looking whether anything changed.
type pythons struct {
	mu   sync.Mutex
	told map[string]telling
}

type telling struct {
	stamp string // of the files that it depends on, see stamp
	self  selfTold
}

// selfTold is what describe.py prints.
type selfTold struct {
	Version      string            `json:"version"`
	Executable   string            `json:"executable"`
	Prefix       string            `json:"prefix"`
	Base         string            `json:"base"` // another than Prefix in a venv
	Folders      []string          `json:"folders"`
	Packages     map[string]string `json:"packages"`
	TorchVersion string            `json:"torch_version"` // the text of torch/version.py
}

// find asks all interpreters. The first one is the default, if there is one.
func (p *pythons) find(ctx context.Context, h *host, a *asker, data string) (found []Python, notes []string) {
	candidates, dropped := h.interpreters(data)
	if dropped > 0 {
		notes = append(notes, fmt.Sprintf("only the first %d Python interpreters are looked at; %d others are not", maxPythons, dropped))
	}
	all := make([]selfTold, len(candidates))
	errs := make([]error, len(candidates))
	var asked sync.WaitGroup
	for i, c := range candidates {
		asked.Go(func() { all[i], errs[i] = p.ask(ctx, a, c) })
	}
	asked.Wait()
	found = []Python{}
	seen := map[string]bool{}
	for i, told := range all {
		switch {
		case errs[i] != nil && candidates[i].mayFail:
		case errs[i] != nil:
			notes = append(notes, fmt.Sprintf("%s is not counted: %v", candidates[i].path, errs[i]))
		case !seen[told.Prefix+"\x00"+told.Version]: // several names lead to one
			seen[told.Prefix+"\x00"+told.Version] = true
			found = append(found, describePython(candidates[i], told))
		}
	}
	p.forget(candidates)
	return found, notes
}

func describePython(c interpreter, told selfTold) Python {
	one := Python{Path: orElse(told.Executable, c.path), Version: told.Version, Default: c.standard, Of: c.of, Packages: told.Packages}
	if one.Packages == nil {
		one.Packages = map[string]string{}
	}
	if one.Of == "" && told.Base != told.Prefix {
		one.Of = "venv"
	}
	if version, ok := one.Packages["torch"]; ok {
		one.Torch = torchBuild(told.TorchVersion, version)
	}
	return one
}

// ask asks one interpreter, unless it told before and nothing changed since.
func (p *pythons) ask(ctx context.Context, a *asker, c interpreter) (selfTold, error) {
	p.mu.Lock()
	before, ok := p.told[c.path]
	p.mu.Unlock()
	if ok && !c.standard && before.stamp == stamp(append(before.self.Folders, c.path)...) { // what the default is may change without a trace in the file
		return before.self, nil
	}
	out, err := a.ask(ctx, c.path, append([]string{"-I", "-c", describe}, packages...)...)
	if err != nil {
		return selfTold{}, err
	}
	told, err := parseSelf(out)
	if err != nil {
		return selfTold{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told == nil {
		p.told = map[string]telling{}
	}
	p.told[c.path] = telling{stamp(append(told.Folders, c.path)...), told}
	return told, nil
}

// forget drops interpreters that are no more.
func (p *pythons) forget(still []interpreter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path := range p.told {
		if !slices.ContainsFunc(still, func(c interpreter) bool { return c.path == path }) {
			delete(p.told, path)
		}
	}
}

// folders are where the interpreters keep packages: they change when one is
// installed.
func (p *pythons) folders() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, t := range p.told {
		all = append(all, t.self.Folders...)
	}
	return all
}

// stamp is another text after one of the files was changed, replaced, made or removed.
func stamp(names ...string) string {
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

// parseSelf reads the last line that describe.py printed: what runs at the start of
// some interpreters prints, too.
func parseSelf(out []byte) (selfTold, error) {
	text := strings.TrimSpace(string(out))
	last := text[strings.LastIndexByte(text, '\n')+1:]
	var told selfTold
	if err := json.Unmarshal([]byte(last), &told); err != nil {
		return selfTold{}, errors.New("it does not tell of itself as Python 3 does")
	}
	if !pythonVersion.MatchString(told.Version) {
		return selfTold{}, fmt.Errorf("it tells the version %q", told.Version)
	}
	return told, nil
}

var pythonVersion = regexp.MustCompile(`^3\.\d{1,3}\.\d{1,3}$`)

// torchBuilt matches what torch/version.py says about a platform, in the forms of
// all releases since 1.8: a value, or None.
var torchBuilt = regexp.MustCompile(`(?m)^(cuda|hip|xpu)\b[^=\n]*=\s*['"](\d+(?:\.\d+)*)[^'"\n]*['"]`)

// torchBuild says what a torch computes on, by its version.py or else by the last
// part of its version, such as +cu121.
func torchBuild(text, version string) string {
	if m := torchBuilt.FindStringSubmatch(text); m != nil {
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

func (h *host) uv(ctx context.Context, a *asker, data string) *UV {
	u := &UV{Path: find(orElse(h.env("MUSTER_UV"), "uv"))}
	if own := filepath.Join(data, "tools", "uv", "bin", "uv"); u.Path == "" && !changedAt(own).IsZero() {
		u.Path = own // that the worker fetched
	}
	if u.Path == "" {
		return nil
	}
	out, err := a.ask(ctx, u.Path, "--version")
	if f := strings.Fields(string(out)); err == nil && len(f) > 1 { // uv 0.5.11 (…)
		u.Version = f[1]
	}
	return u
}

// changedAt returns when a file changed last, or the zero time if it is not there.
func changedAt(name string) time.Time {
	info, err := os.Stat(name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
