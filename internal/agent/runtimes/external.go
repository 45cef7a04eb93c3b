package runtimes

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// inspectTimeout limits the inspection of an interpreter.
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
		a, err := r.inspect(ctx, d)
		if err != nil {
			return nil, err
		}
		if len(a.Lacks) > 0 {
			return nil, run.Failf(muster.Dependency, "%w", &missingError{python: r.cfg.Python, runtime: d.name, packages: a.Lacks})
		}
		known = &run.Runtime{Name: d.name, Python: r.cfg.Python, ReadDirs: append(a.Read, filepath.Dir(r.cfg.Python))}
		r.mu.Lock()
		r.externals[d.name] = known
		r.mu.Unlock()
	}
	rt := *known
	rt.ModuleDirs = code
	return &rt, nil
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
	var h inspectOutput
	err := r.envs.RunScript(ctx, r.cfg.Python, inspectScript, h.addLine, d.requirements()...)
	switch {
	case err != nil:
		return nil, run.Failf(muster.Dependency, "the interpreter %s of --python does not work: %w (%s)", r.cfg.Python, err, h.last)
	case h.result == nil:
		return nil, run.Failf(muster.Dependency, "%s of --python is not a Python interpreter: it printed %q", r.cfg.Python, h.last)
	}
	return h.result, nil
}

// inspectOutput parses the output of inspectScript.
type inspectOutput struct {
	result *inspection // nil until it is printed
	last   string      // last line
}

func (h *inspectOutput) addLine(line string) {
	h.last = line
	if logged, ok := strings.CutPrefix(line, "muster "); ok {
		got := &inspection{}
		if json.Unmarshal([]byte(logged), got) == nil {
			h.result = got
		}
	}
}

// requirements returns the arguments of inspectScript.
func (d *definition) requirements() []string { return append([]string{d.python}, d.needs...) }
