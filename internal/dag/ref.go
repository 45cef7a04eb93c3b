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
var attrs = []string{"sha256", "size", attrURL}

const attrURL = "url"

var stageBody = lazyregexp.New(`^([A-Za-z0-9_-]+)\.(.*)$`)

// parse parses the body of a reference to a stage. It returns false if the body does not
// have the form of one.
func parse(body string) (reference, bool) {
	m := stageBody.Get().FindStringSubmatch(body)
	if m == nil {
		return reference{}, false
	}
	r := reference{stage: m[1], index: -1}
	body, name, attr, called := cutCall(m[2])
	rest := strings.Split(body, ".")
	if n, err := strconv.Atoi(rest[0]); err == nil && len(rest) > 1 && n >= 0 {
		r.index = n
		rest = rest[1:]
	} else if rest[0] == "*" && len(rest) > 1 {
		r.all = true
		rest = rest[1:]
	}
	if called {
		r.field, r.name, r.attr = fieldArtifacts, name, attr
		if len(rest) > 1 || !slices.Contains(attrs, attr) {
			r.problem = `artifact("…") must be followed by sha256, size or url`
		}
		return r, true
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

var artifactCall = lazyregexp.New(`^((?:[^.]*\.)*?)artifact\((?:"([^"]+)"|'([^']+)')\)\.?(.*)$`)

// cutCall cuts artifact("NAME").ATTR from the end of a body. What is before it ends with a dot, or is empty.
func cutCall(body string) (before, name, attr string, ok bool) {
	m := artifactCall.Get().FindStringSubmatch(body)
	if m == nil {
		return body, "", "", false
	}
	return m[1], m[2] + m[3], m[4], true
}

// stageIndex returns the number of the stage with this name, or -1.
func stageIndex(s *muster.Spec, name string) int {
	return slices.IndexFunc(s.Tasks, func(t muster.TaskSpec) bool { return t.Name == name })
}

// stageRefs returns a function that reports whether a body refers to a stage of s.
func stageRefs(s *muster.Spec) func(body string) bool {
	names := make(map[string]bool, len(s.Tasks))
	for i := range s.Tasks {
		names[s.Tasks[i].Name] = true
	}
	return func(body string) bool {
		r, ok := parse(body)
		return ok && names[r.stage]
	}
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
