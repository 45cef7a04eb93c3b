package flow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Reads returns the stages of a normalized spec whose results or artifacts
// others refer to, so that these must be kept until the job ends.
func Reads(s *muster.Spec) map[int]bool {
	read := make(map[int]bool)
	ours := toStage(s)
	for i := range s.Tasks {
		for _, in := range s.Tasks[i].Inputs {
			if from := stageIndex(s, in.From); from >= 0 {
				read[from] = true
			}
		}
		each(&s.Tasks[i], ours, func(_ string, body string) {
			r, _ := parse(body)
			read[stageIndex(s, r.stage)] = true
		})
	}
	return read
}

// each calls f for every reference in t that is ours.
func each(t *muster.TaskSpec, ours func(string) bool, f func(path, body string)) {
	// The substitute never fails; input that is no JSON has no references.
	_, _ = rewrite(t, func(path, text string, _ bool) (any, error) {
		for _, p := range split(text, ours) {
			if p.ref {
				f(path, p.text)
			}
		}
		return text, nil
	})
}

// Check returns what is wrong with the references of a normalized spec, as far
// as it can be known before anything ran: unknown stages, elements and axes,
// and stages that need not have ended by then.
func Check(s *muster.Spec) []muster.FieldError {
	var wrong []muster.FieldError
	for i := range s.Tasks {
		c := checker{spec: s, stage: i, ancestors: ancestors(s, i)}
		each(&s.Tasks[i], looksOurs, func(path, body string) {
			if message, hint := c.check(path, body); message != "" {
				wrong = append(wrong, muster.FieldError{
					Path:    fmt.Sprintf("tasks[%d].%s", i, path),
					Message: fmt.Sprintf("${%s}: %s", body, message),
					Hint:    hint,
				})
			}
		})
	}
	return wrong
}

// looksOurs says whether a body is one that Check has an opinion on.
func looksOurs(body string) bool {
	_, ok := parse(body)
	return ok || ownElement(body)
}

// checker checks the references of one stage.
type checker struct {
	spec      *muster.Spec
	stage     int
	ancestors map[int]bool
}

func (c *checker) check(path, body string) (message, hint string) {
	if ownElement(body) {
		return c.checkOwn(path, body)
	}
	r, _ := parse(body)
	i := stageIndex(c.spec, r.stage)
	switch {
	case i < 0 && !slices.Contains(fields, r.field):
		return "", "" // somebody else's template
	case i < 0:
		return "there is no stage " + r.stage, c.nearest(r.stage)
	case i == c.stage:
		return "a stage cannot read its own result", ""
	case r.problem != "":
		return r.problem, "such as ${" + r.stage + ".result.accuracy} or ${" + r.stage + ".artifacts.model.pt.sha256}"
	case !c.ancestors[i]:
		return "stage " + r.stage + " may not have ended by then", "add " + r.stage + " to needs"
	}
	if _, err := r.position(&c.spec.Tasks[i]); err != nil {
		return err.Error(), ""
	}
	return "", ""
}

func (c *checker) checkOwn(path, body string) (message, hint string) {
	t := &c.spec.Tasks[c.stage]
	if strings.HasPrefix(path, "where.") {
		return "where is the same for all elements of a stage", "make a stage of its own for each place"
	}
	name, isAxis := strings.CutPrefix(body, "matrix.")
	if !isAxis {
		return "", ""
	}
	if t.Matrix == nil {
		return "this stage has no matrix", ""
	}
	var axes []string
	for _, a := range t.Matrix.Axes {
		if a.Name == name {
			return "", ""
		}
		axes = append(axes, a.Name)
	}
	if near := muster.Nearest(name, axes); near != "" {
		hint = "did you mean ${matrix." + near + "}?"
	}
	return "the matrix has no axis " + name, hint
}

func (c *checker) nearest(stage string) string {
	var names []string
	for i := range c.spec.Tasks {
		names = append(names, c.spec.Tasks[i].Name)
	}
	if near := muster.Nearest(stage, names); near != "" {
		return "did you mean " + near + "? For a literal text write $${"
	}
	return "for a literal text write $${"
}

// ancestors returns the stages that have ended when the given one starts.
func ancestors(s *muster.Spec, stage int) map[int]bool {
	seen := make(map[int]bool)
	todo := []int{stage}
	for len(todo) > 0 {
		t := s.Tasks[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		for _, need := range t.Needs {
			if i := stageIndex(s, need); i >= 0 && !seen[i] {
				seen[i] = true
				todo = append(todo, i)
			}
		}
	}
	return seen
}
