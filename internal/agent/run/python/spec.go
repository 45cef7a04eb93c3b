package python

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	maxIncludes   = 20
	maxPackages   = 2000
	maxLineLength = 4096
)

// Spec is what an environment must hold.
type Spec struct {
	Version      string   `json:"version"`      // such as "3.12", or ""
	Requirements []string `json:"requirements"` // lines, with the included ones in their place
	Constraints  []string `json:"constraints,omitempty"`
	Options      []string `json:"options,omitempty"` // lines such as "--extra-index-url …"

	Name         string `json:"-"`                 // what people call it; "" is a python environment
	TorchBackend string `json:"backend,omitempty"` // which packages of PyTorch, as uv's --torch-backend has it
	Wheels       string `json:"-"`                 // a folder with all packages: nothing is fetched
	NoCache      bool   `json:"-"`                 // nothing is taken from what was fetched before
	Prebuilt     bool   `json:"ready,omitempty"`   // only packages that need no building, and they are compiled, so that tasks start sooner
}

// title begins what is said of the environment.
func (w *Spec) title() string {
	if w.Name == "" {
		return "python environment"
	}
	return w.Name
}

// ParseSpec turns what a spec asks for into a Want. Files are read through read, by
// their path in the task's folder.
func ParseSpec(p *muster.Python, readFile func(name string) ([]byte, error)) (Spec, error) {
	w := Spec{Version: p.Version}
	for _, pkg := range p.Packages {
		if err := checkLine(pkg); err != nil || strings.HasPrefix(strings.TrimSpace(pkg), "-") {
			return Spec{}, run.Failf(muster.Dependency, "python.packages: %q is not a package: write a name such as numpy or numpy>=2", pkg)
		}
		w.Requirements = append(w.Requirements, strings.TrimSpace(pkg))
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

// checkLine refuses what would tie a shared environment to one task's folder.
func checkLine(line string) error {
	local := false
	for _, p := range []string{"-e ", "-e=", "--editable", ".", "/", "~", "file:"} {
		local = local || strings.HasPrefix(line, p)
	}
	switch {
	case local || strings.Contains(line, "@ file:") || strings.Contains(line, "@file:"):
		return run.Failf(muster.Dependency, "%q installs from a folder, which an environment that tasks share cannot do: put the code in the task's folder and set PYTHONPATH in env", line)
	case len(line) > maxLineLength || strings.ContainsAny(line, "\x00\n\r"):
		return run.Failf(muster.Dependency, "the line is too long or has control characters")
	}
	return nil
}

// requirementsTxt is the requirements file that uv is given.
func (w *Spec) requirementsTxt() string {
	return strings.Join(append(append([]string(nil), w.Options...), w.Requirements...), "\n") + "\n"
}

// key names the environment that w gets with an interpreter.
func (w *Spec) key(interpreter string) (string, error) {
	b, err := json.Marshal(struct {
		Layout      int    `json:"layout"` // changes when this package builds differently
		Interpreter string `json:"interpreter"`
		Want        *Spec  `json:"want"`
	}{1, interpreter, w})
	if err != nil {
		return "", run.Failf(muster.WorkerInternal, "the environment has no name: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}
