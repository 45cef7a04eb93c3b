package runtimes

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// inspectTimeout is how long an interpreter may take to say what it has.
const inspectTimeout = time.Minute

// inspectScript has an interpreter say its version, the folders that it reads and the versions of packages.
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

// inspection is what an interpreter said.
type inspection struct {
	Version  string            `json:"version"`
	Versions map[string]string `json:"have"`
	Read     []string          `json:"read"`
}

// external returns the operator's interpreter as a runtime. Nothing is installed: what it lacks is said.
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

// missingError says that the operator's interpreter works and is not enough.
type missingError struct {
	python, runtime string
	packages        []string
}

// Error names what is missing.
func (e *missingError) Error() string {
	return fmt.Sprintf("the interpreter %s lacks %s for runtime %s: install what is missing, or start the worker without --python",
		e.python, strings.Join(e.packages, " and "), e.runtime)
}

// inspect has the operator's interpreter say what it has.
func (r *Runtimes) inspect(ctx context.Context, d *definition) (*inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	var h inspectOutput
	err := r.envs.RunScript(ctx, r.cfg.Python, inspectScript, h.addLine, d.packageNames()...)
	switch {
	case err != nil:
		return nil, run.Failf(muster.Dependency, "the interpreter %s, which --python names, does not work: %w (%s)", r.cfg.Python, err, h.last)
	case h.result == nil:
		return nil, run.Failf(muster.Dependency, "%s, which --python names, is no interpreter of Python: it says %q", r.cfg.Python, h.last)
	}
	return h.result, nil
}

// inspectOutput listens to an interpreter that is asked.
type inspectOutput struct {
	result *inspection // nil if it gave none
	last   string      // line that it said
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

// packageNames are those of the packages that a runtime needs.
func (d *definition) packageNames() []string {
	names := make([]string, len(d.needs))
	for i, need := range d.needs {
		names[i] = requirementName(need)
	}
	return names
}

// missing lists what is missing of what a runtime needs.
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

// splitBounds parts a requirement into what names the package and which versions are meant.
func splitBounds(need string) (pkg, bounds string) {
	need, _, _ = strings.Cut(need, ";")
	if i := strings.IndexAny(need, "=<>!~"); i >= 0 {
		return strings.TrimSpace(need[:i]), strings.TrimSpace(need[i:])
	}
	return strings.TrimSpace(need), ""
}

// satisfies reports whether a version is within bounds such as ">=1.13,<3". Only the numbers of the release count: a
// distribution may have built it of an earlier state, such as 1.13.0a0.
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

// releaseNumbers are those of a version's release: 1, 13 and 0 of "1.13.0a0+git".
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

// compareReleases orders releases; what one does not say is 0.
func compareReleases(a, b []int) int {
	for i := range max(len(a), len(b)) {
		var x, y int
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x - y
		}
	}
	return 0
}
