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

// askTime is how long an interpreter may take to say what it has.
const askTime = time.Minute

// asked has an interpreter say its version, the folders that it reads and the versions of packages.
const asked = `
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

// answer is what an interpreter said.
type answer struct {
	Version string            `json:"version"`
	Have    map[string]string `json:"have"`
	Read    []string          `json:"read"`
}

// givenFor returns the operator's interpreter as a runtime. Nothing is installed: what it lacks is said.
func (r *Runtimes) givenFor(ctx context.Context, d *definition, code []string) (*run.Runtime, error) {
	r.mu.Lock()
	known := r.given[d.name]
	r.mu.Unlock()
	if known == nil {
		a, err := r.ask(ctx, d)
		if err != nil {
			return nil, err
		}
		if lack := d.lacks(a); len(lack) > 0 {
			return nil, run.Failf(muster.Dependency, "%w", &lackError{python: r.cfg.Python, runtime: d.name, packages: lack})
		}
		known = &run.Runtime{Name: d.name, Python: r.cfg.Python, Read: append(a.Read, filepath.Dir(r.cfg.Python))}
		r.mu.Lock()
		r.given[d.name] = known
		r.mu.Unlock()
	}
	rt := *known
	rt.Code = code
	return &rt, nil
}

// lackError says that the operator's interpreter works and is not enough.
type lackError struct {
	python, runtime string
	packages        []string
}

// Error names what is missing.
func (e *lackError) Error() string {
	return fmt.Sprintf("the interpreter %s lacks %s for runtime %s: install what is missing, or start the worker without --python",
		e.python, strings.Join(e.packages, " and "), e.runtime)
}

// ask has the operator's interpreter say what it has.
func (r *Runtimes) ask(ctx context.Context, d *definition) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var h hearing
	err := r.envs.Ask(ctx, r.cfg.Python, asked, h.hear, d.names()...)
	switch {
	case err != nil:
		return nil, run.Failf(muster.Dependency, "the interpreter %s, which --python names, does not work: %w (%s)", r.cfg.Python, err, h.last)
	case h.answer == nil:
		return nil, run.Failf(muster.Dependency, "%s, which --python names, is no interpreter of Python: it says %q", r.cfg.Python, h.last)
	}
	return h.answer, nil
}

// hearing listens to an interpreter that is asked.
type hearing struct {
	answer *answer // nil if it gave none
	last   string  // line that it said
}

func (h *hearing) hear(line string) {
	h.last = line
	if said, ok := strings.CutPrefix(line, "muster "); ok {
		got := &answer{}
		if json.Unmarshal([]byte(said), got) == nil {
			h.answer = got
		}
	}
}

// names are those of the packages that a runtime needs.
func (d *definition) names() []string {
	names := make([]string, len(d.needs))
	for i, need := range d.needs {
		names[i] = nameOf(need)
	}
	return names
}

// lacks lists what is missing of what a runtime needs.
func (d *definition) lacks(a *answer) []string {
	var list []string
	if !fits(a.Version, d.python) {
		list = append(list, "Python "+d.python+" (it is "+a.Version+")")
	}
	for _, need := range d.needs {
		have, ok := a.Have[nameOf(need)]
		_, bounds := cutBounds(need)
		switch {
		case !ok:
			list = append(list, need)
		case !fits(have, bounds):
			list = append(list, need+" (it has "+have+")")
		}
	}
	return list
}

// cutBounds parts a requirement into what names the package and which versions are meant.
func cutBounds(need string) (pkg, bounds string) {
	need, _, _ = strings.Cut(need, ";")
	if i := strings.IndexAny(need, "=<>!~"); i >= 0 {
		return strings.TrimSpace(need[:i]), strings.TrimSpace(need[i:])
	}
	return strings.TrimSpace(need), ""
}

// fits reports whether a version is within bounds such as ">=1.13,<3". Only the numbers of the release count: a
// distribution may have built it of an earlier state, such as 1.13.0a0.
func fits(version, bounds string) bool {
	have := numbers(version)
	for bound := range strings.SplitSeq(bounds, ",") {
		bound = strings.TrimSpace(bound)
		i := strings.IndexFunc(bound, func(r rune) bool { return !strings.ContainsRune("=<>!~", r) })
		if i < 0 {
			continue
		}
		want := numbers(strings.TrimSpace(bound[i:]))
		order := compare(have, want)
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
			ok = order >= 0 && len(want) > 1 && compare(have[:min(len(have), len(want)-1)], want[:len(want)-1]) == 0
		}
		if !ok {
			return false
		}
	}
	return true
}

// numbers are those of a version's release: 1, 13 and 0 of "1.13.0a0+git".
func numbers(version string) []int {
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

// compare orders releases; what one does not say is 0.
func compare(a, b []int) int {
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
