package dag

import (
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// reference is a parsed body such as "train.3.result.a.0".
type reference struct {
	stage   string
	index   int  // of the element, or -1
	all     bool // of all elements: the value is a list
	field   string
	path    []string // within the result
	name    string   // of the artifact
	attr    string   // of the artifact
	problem string   // why it is malformed, or ""
}

// The fields of a stage.
const (
	fieldResult    = "result"
	fieldExitCode  = "exit_code"
	fieldArtifacts = "artifacts"
)

var fields = []string{fieldResult, fieldExitCode, fieldArtifacts}

// attrs are the attributes of an artifact.
var attrs = []string{"sha256", "size", "url"}

var stageBody = lazyregexp.New(`^([A-Za-z0-9_-]+)\.(.*)$`)

// parse parses the body of a reference to a stage. It returns false if the body does not
// have the form of one.
func parse(body string) (reference, bool) {
	m := stageBody.Get().FindStringSubmatch(body)
	if m == nil {
		return reference{}, false
	}
	r := reference{stage: m[1], index: -1}
	rest := strings.Split(m[2], ".")
	if n, err := strconv.Atoi(rest[0]); err == nil && len(rest) > 1 && n >= 0 {
		r.index = n
		rest = rest[1:]
	} else if rest[0] == "*" && len(rest) > 1 {
		r.all = true
		rest = rest[1:]
	}
	r.field = rest[0]
	switch r.field {
	case fieldResult:
		r.path = rest[1:]
		if slices.Contains(r.path, "") {
			r.problem = "it has an empty part"
		}
	case fieldExitCode:
		if len(rest) > 1 {
			r.problem = "exit_code has no parts"
		}
	case fieldArtifacts:
		last := len(rest) - 1
		if last < 2 || !slices.Contains(attrs, rest[last]) {
			r.problem = "artifacts must be followed by the artifact's name and sha256, size or url"
			break
		}
		r.name, r.attr = strings.Join(rest[1:last], "."), rest[last]
	default:
		r.problem = "a stage has result, exit_code and artifacts"
	}
	return r, true
}

// elementPosition returns the position of the element that r refers to; if it refers to all, they are not too many, and it returns 0.
func (r reference) elementPosition(t *muster.TaskSpec) (int, error) {
	switch {
	case r.all && t.Size() > maxListElements:
		return 0, muster.Errorf(muster.TooLarge, "stage %s has %d tasks: ${%s.*.…} takes at most %d", r.stage, t.Size(), r.stage, maxListElements)
	case r.all || !t.HasElements() && r.index <= 0:
		return 0, nil
	case r.index < 0:
		return 0, muster.Errorf(muster.Invalid, "stage %s has many tasks: name the element, as in ${%s.%d.%s…}, or all, as in ${%s.*.%s…}", r.stage, r.stage, t.Index(0), r.field, r.stage, r.field)
	}
	i, ok := t.Position(r.index)
	if !ok {
		return 0, muster.Errorf(muster.Invalid, "stage %s has no element %d", r.stage, r.index)
	}
	return i, nil
}
