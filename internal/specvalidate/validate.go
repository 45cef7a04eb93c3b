// Package specvalidate validates job specs. A spec without problems is within all limits,
// defines once what each stage does, and has stages that can all start. Each problem has the
// path of its field and, if possible, a suggestion. Other packages check what needs more than
// the spec: package dag references ${…}, package kind the input of a kind, and clients files.
package specvalidate

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Limits of a spec, in addition to those of package muster.
const (
	maxTitle    = 200       // bytes of a job's name
	maxLabels   = 64        // labels of a job
	maxLabel    = 256       // bytes of a label's value
	maxAxes     = 16        // axes of a matrix
	maxList     = 1_000     // entries of a list in a spec
	maxArgument = 1<<17 - 1 // bytes of one argument or environment value: Linux's limit
	maxWrong    = 100       // problems reported at once
)

var (
	namePattern  = lazyregexp.New(`^[A-Za-z0-9_-]+$`)
	labelPattern = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
)

// reservedNames begin references that do not refer to a stage.
var reservedNames = []string{"index", "matrix", "job", "params"}

// Spec returns the problems of s in the order of the document, at most 100, or nil if s
// is valid. It checks the normalized spec, so that s need not be normalized. It does not
// check references ${…}.
func Spec(s *muster.Spec) []muster.FieldError { return Normalized(s.Normalize()) }

// Normalized is Spec for a normalized spec.
func Normalized(s *muster.Spec) []muster.FieldError {
	v := &validator{spec: s}
	v.job()
	for i := range v.spec.Tasks {
		v.stage(i)
	}
	v.graph()
	return v.wrong[:min(len(v.wrong), maxWrong)]
}

// validator collects problems.
type validator struct {
	spec  *muster.Spec // normalized
	names []string     // of the stages, sorted; nil if there are too many to suggest one
	at    string       // path of the stage, with a dot
	wrong []muster.FieldError
}

// add adds a problem at a path below v.at. The hint may be "".
func (v *validator) add(path, hint, format string, args ...any) {
	v.wrong = append(v.wrong, muster.FieldError{Path: v.at + path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (v *validator) job() {
	s := v.spec
	v.text("name", s.Name, maxTitle)
	v.name("project", s.Project)
	if p := *s.Priority; p < muster.MinPriority || p > muster.MaxPriority {
		v.add("priority", "", "%d is out of range: write %d to %d, higher first", p, muster.MinPriority, muster.MaxPriority)
	}
	if len(s.Labels) > maxLabels {
		v.add("labels", "", "%d labels are too many, the maximum is %d", len(s.Labels), maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		if !labelPattern.Get().MatchString(name) || len(name) > muster.MaxNameSize {
			v.add("labels."+muster.Truncate(name), "", "invalid label name: use letters, digits and . _ - /, at most %d", muster.MaxNameSize)
		}
		v.text("labels."+muster.Truncate(name), s.Labels[name], maxLabel)
	}
	if len(s.Params) > muster.MaxParams {
		v.add("params", "", "%d parameters are too many, the maximum is %d", len(s.Params), muster.MaxParams)
	}
	v.notify("notify", s.Notify)
	v.failurePolicy()
	switch {
	case len(s.Tasks) == 0:
		v.add("tasks", "", "the job has no tasks: add at least one")
	case len(s.Tasks) > muster.MaxStages:
		v.add("tasks", "use array or matrix for tasks that are alike", "%d stages are too many, the maximum is %d", len(s.Tasks), muster.MaxStages)
	}
	if b, err := json.Marshal(s); err != nil {
		v.add("", "", "cannot encode the spec as JSON: %v", err)
	} else if len(b) > muster.MaxSpecSize {
		v.add("", "pass large inputs as files", "the spec is %d bytes as JSON: the maximum is %d", len(b), muster.MaxSpecSize)
	}
}

func (v *validator) failurePolicy() {
	s := v.spec
	switch {
	case !slices.Contains([]string{"", muster.OnFailureContinue, muster.OnFailureStop}, s.OnFailure):
		v.add("on_failure", muster.DidYouMean(s.OnFailure, []string{muster.OnFailureContinue, muster.OnFailureStop}), "%s is unknown: write %s or %s", muster.Truncate(s.OnFailure), muster.OnFailureContinue, muster.OnFailureStop)
	case s.MaxFailures < 0 || s.MaxFailures > muster.MaxTasks:
		v.add("max_failures", "", "%d is out of range: write 0 to %d", s.MaxFailures, muster.MaxTasks)
	case s.MaxFailures > 0 && s.OnFailure == muster.OnFailureContinue: // Normalize sets stop where none is given
		v.add("max_failures", "write on_failure: stop", "max_failures is without effect with on_failure: %s", muster.OnFailureContinue)
	}
}

// graph checks the stages together: their number of tasks, names, needs and inputs.
func (v *validator) graph() {
	v.at = ""
	total, largest := 0, 0
	for i := range v.spec.Tasks {
		n := min(v.spec.Tasks[i].Reserved(), muster.MaxTasks+1)
		total, largest = total+n, max(largest, n)
	}
	if total > muster.MaxTasks && largest <= muster.MaxTasks {
		v.add("tasks", "split it into several jobs", "the job has more than %d tasks", muster.MaxTasks)
	}
	index := make(map[string]int, len(v.spec.Tasks))
	for i := range v.spec.Tasks {
		name := v.spec.Tasks[i].Name
		if first, taken := index[name]; taken {
			v.add(fmt.Sprintf("tasks[%d].name", i), "", "tasks[%[2]d] has the same name %[1]s: give every stage its own name", name, first)
			continue
		}
		index[name] = i
	}
	if len(index) <= dag.MaxSuggestions {
		v.names = slices.Sorted(maps.Keys(index))
	}
	needs := make([][]int, len(v.spec.Tasks))
	neededBy := make([]int, len(v.spec.Tasks)) // for each stage the number of the last one that needs it, from 1
	for i := range v.spec.Tasks {
		needs[i] = v.needs(i, index, neededBy)
	}
	v.at = ""
	if cycle := findCycle(needs); cycle != nil {
		v.add(fmt.Sprintf("tasks[%d].needs", cycle[0]), "", "dependency cycle: %s", v.path(cycle))
	}
	order := dag.NewOrder(needs)
	for i := range v.spec.Tasks {
		v.at = fmt.Sprintf("tasks[%d].", i)
		v.inputs(&v.spec.Tasks[i], index, order, i)
	}
}

// path returns the names of stages each of which needs the next. It leaves out those in the middle of a long path.
func (v *validator) path(stages []int) string {
	const maxNames = 16
	var names []string
	for k, i := range stages {
		if left := len(stages) - maxNames; left > 0 && k >= maxNames/2 && k < maxNames/2+left {
			if k == maxNames/2 {
				names = append(names, fmt.Sprintf("(%d more)", left))
			}
			continue
		}
		names = append(names, muster.Truncate(v.spec.Tasks[i].Name))
	}
	return strings.Join(names, " → ")
}

// needs returns the existing stages that stage i needs, each once.
func (v *validator) needs(i int, index map[string]int, neededBy []int) []int {
	v.at = fmt.Sprintf("tasks[%d].", i)
	t := &v.spec.Tasks[i]
	var known []int
	for k, need := range t.Needs[:min(len(t.Needs), maxList)] {
		if len(v.wrong) >= maxWrong {
			break
		}
		path := fmt.Sprintf("needs[%d]", k)
		j, ok := index[need]
		switch {
		case !ok:
			v.add(path, muster.DidYouMean(need, v.names), "unknown stage %q", muster.Truncate(need))
		case need == t.Name:
			v.add(path, "", "a stage cannot need itself")
		case neededBy[j] == i+1:
			v.add(path, "", "duplicate stage %s", need)
		default:
			neededBy[j] = i + 1
			known = append(known, j)
		}
	}
	return known
}

// findCycle returns stages each of which needs the next, with the first again at the
// end, or nil.
func findCycle(needs [][]int) []int {
	const open, done = 1, 2
	state := make([]int, len(needs))
	var path []int
	var visit func(i int) []int
	visit = func(i int) []int {
		state[i] = open
		path = append(path, i)
		for _, j := range needs[i] {
			if state[j] == open {
				return append(slices.Clone(path[slices.Index(path, j):]), j)
			}
			if state[j] == 0 {
				if cycle := visit(j); cycle != nil {
					return cycle
				}
			}
		}
		state[i] = done
		path = path[:len(path)-1]
		return nil
	}
	for i := range needs {
		if state[i] == 0 {
			if cycle := visit(i); cycle != nil {
				return cycle
			}
		}
	}
	return nil
}

// name checks a name that is used in references, URLs and file names.
func (v *validator) name(path, s string) {
	if !namePattern.Get().MatchString(s) || len(s) > muster.MaxNameSize {
		v.add(path, "", "%q is not a valid name: use letters, digits, - and _, at most %d", muster.Truncate(s), muster.MaxNameSize)
	}
}

// text checks a string that is displayed.
func (v *validator) text(path, s string, limit int) {
	switch {
	case len(s) > limit:
		v.add(path, "", "the string is %d bytes long: the maximum is %d", len(s), limit)
	case !utf8.ValidString(s):
		v.add(path, "", "the string is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		v.add(path, "", "the string has a control character, such as a line break")
	}
}

// count checks the length of a list.
func (v *validator) count(path string, n int) { v.atMost(path, n, maxList) }

// atMost checks the length of a list with a limit of its own, and reports whether it is within it.
func (v *validator) atMost(path string, n, limit int) bool {
	if n > limit {
		v.add(path, "", "%d entries are too many, the maximum is %d", n, limit)
	}
	return n <= limit
}

// optional checks a word of a fixed set, which may be empty.
func (v *validator) optional(path, s string, known ...string) {
	if s != "" {
		v.oneOf(path, s, known...)
	}
}

// oneOf checks a word of a fixed set.
func (v *validator) oneOf(path, s string, known ...string) {
	if !slices.Contains(known, s) {
		v.add(path, muster.DidYouMean(s, known), "unknown value %q: use %s", muster.Truncate(s), muster.JoinWords(known, "or"))
	}
}
