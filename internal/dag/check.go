package dag

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// Referenced returns the stages whose results or artifacts other stages refer to. They must be kept until the job ends.
func (g *Graph) Referenced() map[int]bool {
	referenced := make(map[int]bool)
	for i := range g.spec.Tasks {
		t := &g.spec.Tasks[i]
		for _, in := range t.Inputs {
			if from, ok := g.stages[in.From]; ok {
				referenced[from] = true
			}
		}
		refer := func(_, body string) {
			r, _ := parse(body)
			referenced[g.stages[r.stage]] = true
		}
		forEachRef(t, g.isRef, refer)
		for _, p := range split(t.WhenExpression(), g.isRef) {
			if p.ref {
				refer("when", p.text)
			}
		}
	}
	return referenced
}

// FirstRef returns the field and the body of a reference to a stage in a stage, or "".
func (g *Graph) FirstRef(stage int) (path, body string) {
	forEachRef(&g.spec.Tasks[stage], g.isRef, func(p, b string) {
		if body == "" {
			path, body = p, b
		}
	})
	return path, body
}

// forEachRef calls f for every reference in t for which isRef is true.
func forEachRef(t *muster.TaskSpec, isRef func(string) bool, f func(path, body string)) {
	if t.DynamicArray() && isRef(t.Array.From) {
		f("array", t.Array.From)
	}
	// The substitute never fails; input that is not JSON has no references.
	var discarded muster.TaskSpec
	_ = rewriteTo(&discarded, t, func(path, text string, _ bool) (any, error) {
		for _, p := range split(text, isRef) {
			if p.ref {
				f(path, p.text)
			}
		}
		return text, nil
	})
}

// Check returns the invalid references of a normalized spec, as far as they are known
// before anything ran: unknown stages, elements and axes, and stages that may not have
// ended by then. It stops at 100 problems.
func Check(s *muster.Spec) []muster.FieldError {
	const limit = 100
	var problems []muster.FieldError
	g := New(s)
	c := checker{spec: s, stages: g.stages, order: NewOrder(g.Needs())}
	conditions := 0
	for i := range s.Tasks {
		if a := s.Tasks[i].Array; s.Tasks[i].DynamicArray() && (!looksLikeRef(a.From) || isElementRef(a.From)) && len(problems) < limit {
			problems = append(problems, muster.FieldError{Path: fmt.Sprintf("tasks[%d].array", i), Message: fmt.Sprintf("${%s} is no reference to a stage", muster.Truncate(a.From)), Hint: "write one such as ${prepare.result.shards}"})
			continue
		}
		c.stage = i
		report := func(path, message, hint string) {
			if message != "" && len(problems) < limit {
				problems = append(problems, muster.FieldError{Path: fmt.Sprintf("tasks[%d].%s", i, path), Message: message, Hint: hint})
			}
		}
		forEachRef(&s.Tasks[i], looksLikeRef, func(path, body string) {
			if len(problems) == limit {
				return
			}
			if message, hint := c.check(path, body); message != "" {
				report(path, fmt.Sprintf("${%s}: %s", body, message), hint)
			}
		})
		if conditions += len(s.Tasks[i].WhenExpression()); conditions > MaxConditions {
			report("when", fmt.Sprintf("the conditions of the job are more than %s", muster.Size(MaxConditions)), "compute them in a stage, and refer to its result")
			break
		}
		message, hint := c.checkCondition()
		report("when", message, hint)
	}
	return problems
}

// checkCondition checks the expression of when. All of its references must be to other stages.
func (c *checker) checkCondition() (message, hint string) {
	text := c.spec.Tasks[c.stage].WhenExpression()
	if text == "" || len(text) > MaxCondition {
		return "", ""
	}
	if !strings.Contains(text, "${") {
		return fmt.Sprintf("%q is no condition", muster.Truncate(text)), "write succeeded, failed, always, or a condition such as ${train.result.accuracy} > 0.9"
	}
	_, bodies, err := compileCondition(text)
	if err != nil {
		return err.Error(), ""
	}
	for _, body := range bodies {
		r, ok := parse(body)
		if _, known := c.stages[r.stage]; !ok || !known {
			return fmt.Sprintf("${%s}: there is no stage %s", body, r.stage), c.stageHint(r.stage)
		}
		if message, hint := c.check("when", body); message != "" {
			return fmt.Sprintf("${%s}: %s", body, message), hint
		}
	}
	return "", ""
}

// looksLikeRef reports whether Check checks a body.
func looksLikeRef(body string) bool {
	_, ok := parse(body)
	return ok || isElementRef(body)
}

// checker checks the references of one stage after another.
type checker struct {
	spec   *muster.Spec
	stage  int
	stages map[string]int // by name
	names  []string       // of all stages, sorted, unless there are too many; computed on demand
	order  *Order
}

func (c *checker) check(path, body string) (message, hint string) {
	if isElementRef(body) {
		return c.checkElementRef(path, body)
	}
	r, _ := parse(body)
	i, known := c.stages[r.stage]
	switch {
	case !known && !slices.Contains(fields, r.field) && r.best.text == "" && path != "array":
		return "", "" // another program's template
	case !known:
		return "there is no stage " + r.stage, c.stageHint(r.stage)
	case i == c.stage:
		return "a stage cannot read its own result", ""
	case r.problem != "":
		return r.problem, "such as ${" + r.stage + ".result.accuracy} or ${" + r.stage + ".artifacts.model.pt.sha256}"
	case !c.order.Before(i, c.stage):
		return "stage " + r.stage + " may not have ended by then", "add " + r.stage + " to needs"
	case r.attr == attrURL && !takesURLs(path):
		return "the URL of an artifact is for run, script.args, env and input only", "use sha256 here, or pass the URL by env"
	}
	if _, err := r.elementPosition(&c.spec.Tasks[i]); err != nil {
		return err.Error(), ""
	}
	if err := r.checkSource(&c.spec.Tasks[i]); err != nil {
		return err.Error(), ""
	}
	return "", ""
}

func (c *checker) checkElementRef(path, body string) (message, hint string) {
	t := &c.spec.Tasks[c.stage]
	if isArtifactURL(body) {
		return "this form is reserved", `write ${STAGE.artifact("NAME").url}`
	}
	if isItemReference(body) && !t.DynamicArray() {
		return "", "" // a shell's variable
	}
	if strings.HasPrefix(path, "where.") {
		return "where is the same for all elements of a stage", "use one stage for each placement"
	}
	name, isAxis := strings.CutPrefix(body, "matrix.")
	if !isAxis {
		return "", ""
	}
	axes := t.Axes()
	switch {
	case axes == nil:
		return "this stage has no matrix", ""
	case slices.Contains(axes, name):
		return "", ""
	}
	if near := muster.Nearest(name, axes); near != "" {
		hint = "did you mean ${matrix." + near + "}?"
	}
	return "the matrix has no axis " + name, hint
}

// MaxSuggestions limits the stages with which an unknown name is compared, which takes about 5 µs each: a larger job gets no suggestions.
const MaxSuggestions = 1_000

func (c *checker) stageHint(stage string) string {
	if c.names == nil && len(c.stages) <= MaxSuggestions {
		c.names = slices.Sorted(maps.Keys(c.stages))
	}
	if near := muster.Nearest(stage, c.names); near != "" {
		return "did you mean " + near + "? For a literal text write $${"
	}
	return "for a literal text write $${"
}
