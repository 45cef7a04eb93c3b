package runtimes

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// inspectTimeout limits the inspection of an interpreter.
const inspectTimeout = time.Minute

// inspectScript prints the version of an interpreter, the folders that it reads and the versions of packages.
const inspectScript = `
import importlib.metadata, json, os, platform, sys
have = {}
for name in sys.argv[1:]:
    try:
        have[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
read = [p for p in [sys.prefix, sys.base_prefix, *sys.path] if os.path.isdir(p)]
print("muster " + json.dumps({"version": platform.python_version(), "have": have, "read": read}))
`

// inspection is the output of inspectScript.
type inspection struct {
	Version  string            `json:"version"`
	Versions map[string]string `json:"have"`
	Read     []string          `json:"read"`
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
		if missing := d.missing(a); len(missing) > 0 {
			return nil, run.Failf(muster.Dependency, "%w", &missingError{python: r.cfg.Python, runtime: d.name, packages: missing})
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
	err := r.envs.RunScript(ctx, r.cfg.Python, inspectScript, h.addLine, d.packageNames()...)
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

// packageNames returns the names of the packages that a runtime needs.
func (d *definition) packageNames() []string {
	names := make([]string, len(d.needs))
	for i, need := range d.needs {
		names[i] = requirementName(need)
	}
	return names
}

// missing lists the requirements of a runtime that an interpreter does not satisfy.
func (d *definition) missing(a *inspection) []string {
	var list []string
	if !satisfies(a.Version, d.python) {
		list = append(list, "Python "+d.python+" (it is "+a.Version+")")
	}
	for _, need := range d.needs {
		have, ok := a.Versions[requirementName(need)]
		_, bounds := splitBounds(need)
		switch {
		case !ok:
			list = append(list, need)
		case !satisfies(have, bounds):
			list = append(list, need+" (it has "+have+")")
		}
	}
	return list
}

// splitBounds splits a requirement into the package and the version bounds.
func splitBounds(need string) (pkg, bounds string) {
	need, _, _ = strings.Cut(need, ";")
	if i := strings.IndexAny(need, "=<>!~"); i >= 0 {
		return strings.TrimSpace(need[:i]), strings.TrimSpace(need[i:])
	}
	return strings.TrimSpace(need), ""
}

// satisfies reports whether a version is within bounds such as ">=1.13,<3". Only release numbers count, because distributions build
// versions such as 1.13.0a0.
func satisfies(version, bounds string) bool {
	have := releaseNumbers(version)
	for bound := range strings.SplitSeq(bounds, ",") {
		bound = strings.TrimSpace(bound)
		i := strings.IndexFunc(bound, func(r rune) bool { return !strings.ContainsRune("=<>!~", r) })
		if i < 0 {
			continue
		}
		want := releaseNumbers(strings.TrimSpace(bound[i:]))
		order := compareReleases(have, want)
		ok := false
		switch bound[:i] {
		case ">=":
			ok = order >= 0
		case ">":
			ok = order > 0
		case "<=":
			ok = order <= 0
		case "<":
			ok = order < 0
		case "==":
			ok = order == 0
		case "!=":
			ok = order != 0
		case "~=":
			ok = order >= 0 && len(want) > 1 && compareReleases(have[:min(len(have), len(want)-1)], want[:len(want)-1]) == 0
		}
		if !ok {
			return false
		}
	}
	return true
}

// releaseNumbers returns the release numbers of a version: 1, 13 and 0 of "1.13.0a0+git".
func releaseNumbers(version string) []int {
	var list []int
	for part := range strings.SplitSeq(version, ".") {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		digits := part
		if end >= 0 {
			digits = part[:end]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}
		list = append(list, n)
		if end >= 0 {
			break
		}
	}
	return list
}

// compareReleases compares releases; missing numbers are 0.
func compareReleases(a, b []int) int {
	n := max(len(a), len(b))
	return slices.Compare(append(slices.Clone(a), make([]int, n-len(a))...), append(slices.Clone(b), make([]int, n-len(b))...))
}
