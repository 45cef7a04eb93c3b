package runtimes

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/runtimes"
)

const inspectTimeout = time.Minute

// inspectScript prints an inspection of an interpreter.
//
//go:embed inspect.py
var inspectScript string

// inspection is the output of inspectScript.
type inspection struct {
	Lacks []string `json:"lacks"` // requirements of the runtime
	Read  []string `json:"read"`  // folders that it reads
}

// external returns the operator's interpreter as a runtime. It installs nothing; missing packages are an error.
func (r *Runtimes) external(ctx context.Context, d *definition, code []string) (*run.Runtime, error) {
	r.mu.Lock()
	known := r.externals[d.name]
	r.mu.Unlock()
	if known == nil {
		var err error
		if known, err = r.inspectExternal(ctx, d); err != nil {
			return nil, err
		}
	}
	rt := *known
	rt.ModuleDirs = code
	return &rt, nil
}

// inspectExternal inspects the operator's interpreter, and keeps the result for external if it has all packages.
func (r *Runtimes) inspectExternal(ctx context.Context, d *definition) (known *run.Runtime, err error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.externals, d.name); known != nil {
			r.externals[d.name] = known
		}
	}()
	a, err := r.inspect(ctx, d)
	if err != nil {
		return nil, err
	}
	if len(a.Lacks) > 0 {
		return nil, run.Failf(muster.Dependency, "%w", &missingError{python: r.cfg.Python, runtime: d.name, packages: a.Lacks})
	}
	return &run.Runtime{Name: d.name, Python: r.cfg.Python, ReadDirs: append(a.Read, filepath.Dir(r.cfg.Python))}, nil
}

// Available returns why tasks cannot have a runtime on this machine: the operator's interpreter lacks packages of it, or no environment
// can be built. It builds nothing, and knows nothing of package indexes. An interpreter is inspected each time.
func (r *Runtimes) Available(ctx context.Context, name string) error {
	d, err := r.definition(name)
	switch {
	case err != nil:
		return err
	case r.cfg.Python != "":
		_, err := r.inspectExternal(ctx, d)
		return err
	case r.built(d):
		return nil
	}
	return r.envs.Buildable(ctx)
}

// Likely reports whether Available will probably return nil. It executes nothing.
func (r *Runtimes) Likely(name string) bool {
	d, err := r.definition(name)
	return err == nil && r.cfg.Python == "" && (r.envs.HasTools() || r.built(d))
}

func (r *Runtimes) built(d *definition) bool {
	_, err := r.envs.Load(r.request(d, run.Observer{}).Name)
	return err == nil
}

// missingError means that the operator's interpreter works but lacks packages.
type missingError struct {
	python, runtime string
	packages        []string
}

// Error names what is missing.
func (e *missingError) Error() string {
	return fmt.Sprintf("the interpreter %s lacks %s for runtime %s: install what is missing, or start the worker without --python",
		e.python, strings.Join(e.packages, " and "), e.runtime)
}

// inspect runs inspectScript with the operator's interpreter.
func (r *Runtimes) inspect(ctx context.Context, d *definition) (*inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	var out strings.Builder
	err := r.envs.RunScript(ctx, r.cfg.Python, inspectScript, func(line string) { out.WriteString(line + "\n") }, d.requirements()...)
	a, last := parseInspection(out.String())
	switch {
	case err != nil:
		return nil, run.Failf(muster.Dependency, "the interpreter %s of --python does not work: %w (%s)", r.cfg.Python, err, last)
	case a == nil:
		return nil, run.Failf(muster.Dependency, "%s of --python is not a Python interpreter: it printed %q", r.cfg.Python, last)
	}
	return a, nil
}

// parseInspection returns the inspection in the output of inspectScript, nil if there is none, and the last line.
func parseInspection(output string) (a *inspection, last string) {
	for line := range strings.Lines(output) {
		last = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(last, "muster "); ok {
			a = &inspection{}
			if json.Unmarshal([]byte(text), a) != nil {
				a = nil
			}
		}
	}
	return a, last
}

func (d *definition) requirements() []string { return append([]string{d.python}, d.needs...) }

// Missing lists the requirements of one of Muster's runtimes that an interpreter does not satisfy. It executes the interpreter without
// isolation, so it is only for programs that run in the same image.
func Missing(ctx context.Context, name, python string) ([]string, error) {
	d, err := (&Runtimes{files: runtimes.Files()}).definition(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, python, append([]string{"-c", inspectScript}, d.requirements()...)...).CombinedOutput()
	a, last := parseInspection(string(output))
	if a == nil {
		return nil, fmt.Errorf("%s does not work: it printed %q (%w)", python, last, err)
	}
	return a.Lacks, nil
}
