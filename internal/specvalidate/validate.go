// Package valid says whether a job spec can be accepted. It promises that a spec in
// which it finds nothing wrong is within all limits of a spec, says for each stage what
// to do, once, and has stages that can all start. Each problem names the field that it is
// about and, where that can be guessed, what was meant. What needs more than the spec is
// left to others: references ${…} to package flow, the input of a kind to package kind,
// files to those who have them.
package specvalidate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// Limits of a spec, beside those of package muster.
const (
	maxTitle    = 200       // bytes of a job's name
	maxLabels   = 64        // labels of a job
	maxLabel    = 256       // bytes of a label's value
	maxAxes     = 16        // axes of a matrix
	maxList     = 1_000     // entries of a list in a spec
	maxArgument = 1<<17 - 1 // bytes of one argument or environment value: what Linux passes on
	maxWrong    = 100       // problems that are reported at once
)

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
)

// reservedNames begin references that are not about a stage.
var reservedNames = []string{"index", "matrix", "job"}

// Spec returns what is wrong with s, in the order of the document, at most
// 100 problems, and nothing if it can be accepted. It looks at s as Normalize
// leaves it, so s may be given before or after. References ${…} are not looked
// at, nor is there anything that needs a machine or a server.
func Spec(s *muster.Spec) []muster.FieldError {
	v := &validator{spec: s.Normalize()}
	v.job()
	for i := range v.spec.Tasks {
		v.stage(i)
	}
	v.graph()
	return v.wrong[:min(len(v.wrong), maxWrong)]
}

// validator collects what is wrong.
type validator struct {
	spec  *muster.Spec // normalized
	at    string       // the path of the stage, with a dot
	wrong []muster.FieldError
}

// add notes a problem at a path below v.at. The hint may be empty.
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
		v.add("labels", "", "%d labels are too many: write at most %d", len(s.Labels), maxLabels)
	}
	for _, name := range sortedKeys(s.Labels) {
		if !labelPattern.MatchString(name) || len(name) > muster.MaxNameSize {
			v.add("labels."+truncate([]byte(name)), "", "the name of a label has letters, digits and . _ - /, and at most %d of them", muster.MaxNameSize)
		}
		v.text("labels."+truncate([]byte(name)), s.Labels[name], maxLabel)
	}
	v.notify("notify", s.Notify)
	switch {
	case len(s.Tasks) == 0:
		v.add("tasks", "", "the job has no tasks: write at least one")
	case len(s.Tasks) > muster.MaxStages:
		v.add("tasks", "use array or matrix for tasks that are alike", "%d stages are too many: a job has at most %d", len(s.Tasks), muster.MaxStages)
	}
	if b, err := json.Marshal(s); err != nil {
		v.add("", "", "the spec cannot be written as JSON: %v", err)
	} else if len(b) > muster.MaxSpecSize {
		v.add("", "bring large inputs as files", "the spec is %s as JSON: at most %s are allowed", muster.Size(len(b)), muster.Size(muster.MaxSpecSize))
	}
}

// graph checks what the stages are together: their number of tasks, their
// names and their needs.
func (v *validator) graph() {
	v.at = ""
	total, largest := 0, 0
	for i := range v.spec.Tasks {
		n := min(v.spec.Tasks[i].Size(), muster.MaxTasks+1)
		total, largest = total+n, max(largest, n)
	}
	if total > muster.MaxTasks && largest <= muster.MaxTasks {
		v.add("tasks", "split it into several jobs", "the job has more than %d tasks", muster.MaxTasks)
	}
	index := make(map[string]int, len(v.spec.Tasks))
	for i := range v.spec.Tasks {
		name := v.spec.Tasks[i].Name
		if first, taken := index[name]; taken {
			v.add(fmt.Sprintf("tasks[%d].name", i), "", "the name %s is taken by tasks[%d]: give every stage its own", name, first)
			continue
		}
		index[name] = i
	}
	needs := make([][]int, len(v.spec.Tasks))
	for i := range v.spec.Tasks {
		needs[i] = v.needs(i, index)
	}
	v.at = ""
	if cycle := findCycle(needs); cycle != nil {
		var names []string
		for _, i := range cycle {
			names = append(names, v.spec.Tasks[i].Name)
		}
		v.add(fmt.Sprintf("tasks[%d].needs", cycle[0]), "", "these stages wait for each other: %s", strings.Join(names, " → "))
	}
	for i := range v.spec.Tasks {
		v.at = fmt.Sprintf("tasks[%d].", i)
		v.inputs(&v.spec.Tasks[i], index, needs, i)
	}
}

// needs returns the stages that stage i needs, as far as they exist.
func (v *validator) needs(i int, index map[string]int) []int {
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
			v.add(path, didYouMean(need, sortedKeys(index)), "there is no stage %q", truncate([]byte(need)))
		case need == t.Name:
			v.add(path, "", "a stage cannot need itself")
		case slices.Contains(t.Needs[:k], need):
			v.add(path, "", "%s is there twice", need)
		default:
			known = append(known, j)
		}
	}
	return known
}

// findCycle returns stages each of which needs the next, the first again at the
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

// name checks a name that stands in references, URLs and file names.
func (v *validator) name(path, s string) {
	if !namePattern.MatchString(s) || len(s) > muster.MaxNameSize {
		v.add(path, "", "%q is not a name: write letters, digits, - and _, at most %d", truncate([]byte(s)), muster.MaxNameSize)
	}
}

// text checks a text that is shown to people.
func (v *validator) text(path, s string, limit int) {
	switch {
	case len(s) > limit:
		v.add(path, "", "the text is %d bytes long: at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		v.add(path, "", "the text is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		v.add(path, "", "the text has a control character, such as a line break")
	}
}

// count checks the length of a list.
func (v *validator) count(path string, n int) {
	if n > maxList {
		v.add(path, "", "%d entries are too many: at most %d are allowed", n, maxList)
	}
}

// oneOf checks a word of a fixed set.
func (v *validator) oneOf(path, s string, known ...string) {
	if !slices.Contains(known, s) {
		v.add(path, didYouMean(s, known), "%q is not known: write %s", truncate([]byte(s)), orList(known))
	}
}

// truncate cuts a piece of a document to what fits into a message.
func truncate(b []byte) string {
	const limit = 40
	if r := []rune(string(b)); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return string(b)
}

func didYouMean(s string, known []string) string {
	if near := muster.Nearest(s, known); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// orList writes "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
