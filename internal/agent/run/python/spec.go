package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

const (
	maxIncludes   = 20
	maxPackages   = 2000
	maxLineLength = 4096

	maxRequirements = 1 << 20 // bytes of one file
)

// OwnerProject is the project of environments that the worker's owner defines. No job belongs to it.
const OwnerProject = "(owner)"

// Spec describes an environment.
type Spec struct {
	Project      string   `json:"project,omitempty"` // whose tasks may use it; not with Prebuilt
	Version      string   `json:"version"`           // such as "3.12", or ""
	Requirements []string `json:"requirements"`      // lines, with included files expanded
	Constraints  []string `json:"constraints,omitempty"`
	Options      []string `json:"options,omitempty"` // lines such as "--extra-index-url …"

	Source *Source `json:"source,omitempty"` // the task's own project
	Files  string  `json:"files,omitempty"`  // identifies the content of the task's files, if packages are built from them
	Image  string  `json:"image,omitempty"`  // ID of the image whose Python it uses; "" for one of this machine

	Request *run.PythonRequest `json:"-"` // nil for a runtime

	TorchBackend string `json:"backend,omitempty"` // uv's --torch-backend
	Wheels       string `json:"-"`                 // a folder with all packages: nothing is fetched
	NoCache      bool   `json:"-"`                 // ignore uv's cache
	Prebuilt     bool   `json:"ready,omitempty"`   // only packages without a build step; modules are compiled so that tasks start sooner
}

// Source is a project with a pyproject.toml.
type Source struct {
	Folder string   `json:"folder"` // in the task's files
	Extras []string `json:"extras,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// requiresPython finds requires-python, a field of the table project in pyproject.toml.
var requiresPython = lazyregexp.New(`(?m)^[ \t]*requires-python[ \t]*=[ \t]*["']([0-9A-Za-z.,<>=!~* ]{1,100})["']`)

// ParseSpec converts the python section of a spec. readFile reads a file by its path in the task's folder.
func ParseSpec(p *muster.Python, readFile func(name string) ([]byte, error)) (Spec, error) {
	w := Spec{Version: p.Version}
	for _, pkg := range p.Packages {
		pkg = strings.TrimSpace(pkg)
		err := checkLine(pkg)
		if muster.IsLocalPackage(pkg) {
			err = checkLocal(pkg)
		}
		if err != nil || strings.HasPrefix(pkg, "-") {
			return Spec{}, run.Failf(muster.Dependency, "python.packages: %q is not a package: use a name such as numpy or numpy>=2, or a path in the task's files such as ./lib", pkg)
		}
		w.Requirements = append(w.Requirements, pkg)
	}
	if p.Project != "" {
		w.Source = &Source{Folder: path.Clean(p.Project), Extras: p.Extras, Groups: p.Groups}
		text, err := readFile(path.Join(w.Source.Folder, "pyproject.toml"))
		if err != nil {
			return Spec{}, err
		}
		if m := requiresPython.Get().FindSubmatch(text); m != nil && w.Version == "" {
			w.Version = string(m[1])
		}
	}
	if p.Requirements != "" {
		r := requirementsReader{readFile: readFile, spec: &w, seen: map[string]bool{}}
		if err := r.parseFile(path.Clean(p.Requirements), false); err != nil {
			return Spec{}, err
		}
	}
	return w, nil
}

// requirementsReader reads a requirements file and those that it includes.
type requirementsReader struct {
	readFile func(name string) ([]byte, error)
	spec     *Spec
	seen     map[string]bool
}

func (r *requirementsReader) parseFile(name string, constraints bool) error {
	if r.seen[name] {
		return nil
	}
	r.seen[name] = true
	if len(r.seen) > maxIncludes {
		return run.Failf(muster.Dependency, "%s: more than %d files include each other", name, maxIncludes)
	}
	text, err := r.readFile(name)
	if err != nil {
		return err
	}
	joined := strings.ReplaceAll(strings.ReplaceAll(string(text), "\r\n", "\n"), "\\\n", " ")
	number := 0
	for line := range strings.Lines(joined) {
		number++
		line = strings.TrimSpace(line)
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = strings.TrimSpace(line[:i])
		}
		if line == "" {
			continue
		}
		if err := r.parseLine(name, line, constraints); err != nil {
			return run.Failf(muster.Dependency, "%s, line %d: %w", name, number, err)
		}
	}
	return nil
}

func (r *requirementsReader) parseLine(name, parseLine string, constraints bool) error {
	if err := checkLine(parseLine); err != nil {
		return err
	}
	if len(r.spec.Requirements) >= maxPackages {
		return run.Failf(muster.Dependency, "more than %d packages", maxPackages)
	}
	for _, opt := range []string{"-r", "--requirement", "-c", "--constraint"} {
		if rest, ok := strings.CutPrefix(parseLine, opt); ok && strings.ContainsAny(rest[:min(1, len(rest))], " =\t") {
			include := path.Join(path.Dir(name), strings.Trim(rest, " =\t"))
			return r.parseFile(include, constraints || strings.HasSuffix(opt, "c") || strings.HasSuffix(opt, "constraint"))
		}
	}
	switch {
	case strings.HasPrefix(parseLine, "-"):
		r.spec.Options = append(r.spec.Options, parseLine)
	case constraints:
		r.spec.Constraints = append(r.spec.Constraints, parseLine)
	default:
		r.spec.Requirements = append(r.spec.Requirements, parseLine)
	}
	return nil
}

// checkLocal rejects a path that is not in the task's files.
func checkLocal(pkg string) error {
	file, _, _ := strings.Cut(pkg, "[")
	if !fs.ValidPath(path.Clean(file)) || len(pkg) > maxLineLength || strings.ContainsAny(pkg, "\x00\n\r#;") {
		return errors.New("it is not a path in the task's files")
	}
	return nil
}

// checkLine rejects requirements that depend on one task's folder, because the tasks of a project share environments.
func checkLine(line string) error {
	local := false
	for _, p := range []string{"-e ", "-e=", "--editable", ".", "/", "~", "file:"} {
		local = local || strings.HasPrefix(line, p)
	}
	switch {
	case local || strings.Contains(line, "@ file:") || strings.Contains(line, "@file:"):
		return run.Failf(muster.Dependency, "%q installs from a folder, but tasks share environments: list the folder in python.packages, such as ./lib, or put the code in the task's folder and set PYTHONPATH in env", line)
	case len(line) > maxLineLength || strings.ContainsAny(line, "\x00\n\r"):
		return run.Failf(muster.Dependency, "line is too long or has control characters")
	}
	return nil
}

// requirementsTxt returns the requirements for uv. Paths are relative to the folder of a build.
func (w *Spec) requirementsTxt() string {
	lines := slices.Clone(w.Options)
	for _, line := range w.Requirements {
		if muster.IsLocalPackage(line) {
			line = "./" + filesFolder + line[1:]
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n") + "\n"
}

// key returns the name of the environment for w and an interpreter.
func (w *Spec) key(interpreter string) (string, error) {
	b, err := json.Marshal(struct {
		Layout      int    `json:"layout"` // changes when this package builds differently
		Interpreter string `json:"interpreter"`
		Want        *Spec  `json:"want"`
	}{2, interpreter, w})
	if err != nil {
		return "", run.Failf(muster.WorkerInternal, "encode the environment's key: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}

// GetFor is Get for the python section of a spec.
func (e *Envs) GetFor(ctx context.Context, r *run.PythonRequest, observer run.Observer) (string, error) {
	spec, err := ParseSpec(r.Python, func(name string) ([]byte, error) {
		f, err := run.OpenRegularIn(r.Root, filepath.FromSlash(name))
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
	spec.Project, spec.Request = r.Project, r
	if r.Python.UsesFiles() {
		if spec.Files = r.Files; spec.Files == "" {
			return "", run.Failf(muster.Dependency, "python: the task has no files to install packages from: set files")
		}
	}
	if r.Image != nil {
		spec.Image = r.Image.ID
	}
	return e.GetSpec(ctx, spec, observer)
}

// GetSpec is Get for a spec. Its environment belongs to the interpreter that uv finds for it.
func (e *Envs) GetSpec(ctx context.Context, spec Spec, observer run.Observer) (string, error) {
	uv, err := e.tool.find(ctx, observer)
	if err != nil {
		return "", err
	}
	interpreter := ""
	if spec.Image == "" {
		if interpreter, err = e.findInterpreter(ctx, uv, spec.Version, observer); err != nil {
			return "", err
		}
	}
	name, err := spec.key(interpreter)
	if err != nil {
		return "", err
	}
	return e.Get(ctx, Request{Name: name, Title: "python environment", Spec: func(context.Context) *Spec { return &spec }}, observer)
}
