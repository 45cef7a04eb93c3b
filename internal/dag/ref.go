package dag

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// reference is a parsed body such as "train.3.result.a.0".
type reference struct {
	stage string
	index int  // of the element, or -1
	all   bool // of all elements: the value is a list
	best  best // of the element with the lowest or the highest value
	source
	problem string // why it is malformed, or ""
}

// source is what a reference takes from a task.
type source struct {
	field string
	path  []string // within the result, the matrix or the item
	name  string   // of the artifact or the metric
	attr  string   // of the artifact
}

// best is the choice of an element by a number.
type best struct {
	text string // such as min(result.loss), or ""
	max  bool
	by   source
}

// The fields of a task.
const (
	fieldResult    = "result"
	fieldExitCode  = "exit_code"
	fieldArtifacts = "artifacts"
	fieldMetrics   = "metrics"
	fieldIndex     = "index"
	fieldMatrix    = "matrix"
	fieldItem      = "item"
)

// fields are those whose references must be to a stage of the job: with the others it may be another program's template.
var fields = []string{fieldResult, fieldExitCode, fieldArtifacts}

// attrs are the attributes of an artifact.
var attrs = []string{"sha256", "size", attrURL}

const attrURL = "url"

var (
	stageBody = lazyregexp.New(`^([A-Za-z0-9_-]+)\.(.*)$`)
	bestBody  = lazyregexp.New(`^((min|max)\(([^()]*)\))\.(.*)$`)
)

// parse parses the body of a reference to a stage. It returns false if the body does not
// have the form of one.
func parse(body string) (reference, bool) {
	m := stageBody.Get().FindStringSubmatch(body)
	if m == nil {
		return reference{}, false
	}
	r := reference{stage: m[1], index: -1}
	text := m[2]
	if strings.HasPrefix(text, "min(") || strings.HasPrefix(text, "max(") {
		m := bestBody.Get().FindStringSubmatch(text)
		if m == nil {
			r.problem = "write it as " + r.stage + ".min(result.loss).result, or with another part of that task"
			return r, true
		}
		r.best.text, r.best.max, text = m[1], m[2] == "max", m[4]
		if r.best.by, r.problem = parseSource(strings.Split(m[3], ".")); r.problem == "" && !slices.Contains([]string{fieldResult, fieldMetrics, fieldExitCode}, r.best.by.field) {
			r.problem = "choose by a number in result or metrics, or by exit_code"
		}
	}
	text, name, attr, called := cutCall(text)
	rest := strings.Split(text, ".")
	if r.best.text != "" {
		// names the element
	} else if n, err := strconv.Atoi(rest[0]); err == nil && len(rest) > 1 && n >= 0 {
		r.index = n
		rest = rest[1:]
	} else if rest[0] == "*" && len(rest) > 1 {
		r.all = true
		rest = rest[1:]
	}
	if called {
		r.source = source{field: fieldArtifacts, name: name, attr: attr}
		if len(rest) > 1 || !slices.Contains(attrs, attr) {
			r.problem = cmp.Or(r.problem, `artifact("…") must be followed by sha256, size or url`)
		}
		return r, true
	}
	var problem string
	r.source, problem = parseSource(rest)
	r.problem = cmp.Or(r.problem, problem)
	return r, true
}

// parseSource parses what follows the stage and the element.
func parseSource(rest []string) (p source, problem string) {
	p.field = rest[0]
	switch p.field {
	case fieldResult, fieldMatrix, fieldItem:
		if p.path = rest[1:]; slices.Contains(p.path, "") {
			problem = "it has an empty part"
		}
	case fieldExitCode, fieldIndex:
		if len(rest) > 1 {
			problem = p.field + " has no parts"
		}
	case fieldMetrics:
		if p.name = strings.Join(rest[1:], "."); p.name == "" {
			problem = "metrics must be followed by the name of one"
		}
	case fieldArtifacts:
		last := len(rest) - 1
		if last < 2 || !slices.Contains(attrs, rest[last]) {
			problem = "artifacts must be followed by the artifact's name and sha256, size or url"
			break
		}
		p.name, p.attr = strings.Join(rest[1:last], "."), rest[last]
	default:
		problem = "a stage has result, exit_code, metrics, artifacts, index, matrix and item"
	}
	return p, problem
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

// elementPosition returns the position of the element that r refers to; if it refers to all, or to the best of all, they are not too many,
// and it returns 0.
func (r reference) elementPosition(t *muster.TaskSpec) (int, error) {
	switch {
	case (r.all || r.best.text != "") && t.Size() > maxListElements:
		return 0, muster.Errorf(muster.TooLarge, "stage %s has %d tasks: ${%s.%s.…} takes at most %d", r.stage, t.Size(), r.stage, cmp.Or(r.best.text, "*"), maxListElements)
	case r.all || r.best.text != "" || !t.HasElements() && r.index <= 0:
		return 0, nil
	case r.index < 0:
		return 0, muster.Errorf(muster.Invalid, "stage %s has many tasks: name the element, as in ${%s.%d.%s…}, all, as in ${%s.*.%s…}, or the best, as in ${%s.min(result.loss).%s…}", r.stage,
			r.stage, t.Index(0), r.field, r.stage, r.field, r.stage, r.field)
	}
	i, ok := t.Position(r.index)
	if !ok {
		return 0, muster.Errorf(muster.Invalid, "stage %s has no element %d", r.stage, r.index)
	}
	return i, nil
}

// checkSource returns why no task of a stage has what r takes of it, as far as it is known before it ran.
func (r reference) checkSource(t *muster.TaskSpec) error {
	switch {
	case r.field == fieldMatrix && t.Axes() == nil:
		return muster.Errorf(muster.Invalid, "stage %s has no matrix", r.stage)
	case r.field == fieldMatrix && len(r.path) > 0:
		axis := strings.Join(r.path, ".")
		if !slices.Contains(t.Axes(), axis) {
			return muster.Errorf(muster.Invalid, "the matrix of stage %s has no axis %s", r.stage, muster.Truncate(axis))
		}
	case r.field == fieldItem && !t.DynamicArray() && (t.Array == nil || t.Array.Items == nil):
		return muster.Errorf(muster.Invalid, "stage %s has no items: its array is no list of another stage", r.stage)
	}
	return nil
}
