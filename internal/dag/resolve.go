package dag

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// ResultFunc returns the finished task at a position of a stage, both from 0, and
// whether it is known.
type ResultFunc = func(stage, element int) (muster.Task, bool)

// Resolve returns the stage's spec with all references to other stages replaced by their
// values; ${index} and ${matrix…} stay for Bind. The referenced stages have ended. An Invalid error names the field, the reference and
// what is missing. The copy shares unchanged parts with s.
func (g *Graph) Resolve(stage int, result ResultFunc) (*muster.TaskSpec, error) {
	g.forget()
	isRef := func(body string) bool { return isElementRef(body) || g.isRef(body) }
	resolved, err := rewrite(&g.spec.Tasks[stage], func(path, text string, whole bool) (any, error) {
		parts := split(text, isRef)
		var resolved []part
		for i, p := range parts {
			if !p.ref || isElementRef(p.text) {
				if resolved != nil {
					resolved = append(resolved, p)
				}
				continue
			}
			v, err := g.resolveRef(p.text, result)
			if err != nil {
				return nil, muster.Errorf(muster.Invalid, "%s: ${%s} cannot be resolved: %w", path, p.text, err)
			}
			if !takesURLs(path) {
				v = withoutURLs(v)
			}
			if whole && len(parts) == 1 {
				return escapeAll(v), nil
			}
			if resolved == nil {
				resolved = slices.Clone(parts[:i])
			}
			resolved = append(resolved, valueParts(v)...)
		}
		if resolved == nil {
			return text, nil
		}
		return join(resolved), nil
	})
	if err == nil && resolved.DynamicArray() {
		err = g.fanOut(resolved, result)
	}
	return resolved, err
}

// escapeAll escapes the strings in a JSON value for Bind.
func escapeAll(v any) any {
	switch v := v.(type) {
	case string:
		return join([]part{{text: v}})
	case artifactURL:
		return join([]part{{text: v.body, ref: true}})
	case []any:
		for i := range v {
			v[i] = escapeAll(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = escapeAll(v[k])
		}
	}
	return v
}

func (g *Graph) resolveRef(body string, result ResultFunc) (any, error) {
	r, _ := parse(body)
	if r.problem != "" {
		return nil, muster.Errorf(muster.Invalid, "%s", r.problem)
	}
	i := g.stages[r.stage]
	t := &g.spec.Tasks[i]
	element, err := r.elementPosition(t)
	if err == nil {
		err = r.checkSource(t)
	}
	if err != nil {
		return nil, err
	}
	succeeded := func(element int) (*muster.Task, error) { // nil for other tasks
		task, ok := result(i, element)
		if !ok || task.State != muster.Succeeded {
			return nil, nil //nolint:nilnil // see above
		}
		if g.read += len(task.Result); g.read > maxRead {
			return nil, muster.Errorf(muster.TooLarge, "the references of the stage read more than %s of results", muster.Size(maxRead))
		}
		return &task, nil
	}
	switch {
	case r.all:
		return r.list(t, succeeded)
	case r.best.text != "":
		if element, err = g.bestElement(r, t, succeeded); err != nil {
			return nil, err
		}
	}
	task, ok := result(i, element)
	if !ok {
		return nil, muster.Errorf(muster.Invalid, "the result of stage %s is not known", r.stage)
	}
	return r.value(t, element, &task)
}

// Limits of references to all elements of a stage.
const (
	maxListElements = 10_000
	maxListSize     = muster.MaxResultSize // bytes of JSON of a list
	maxRead         = 256 << 20            // bytes of results that are decoded for one stage
)

// list returns the values of those elements of a stage that have succeeded, in their order.
func (r reference) list(s *muster.TaskSpec, succeeded func(element int) (*muster.Task, error)) (any, error) {
	list, bytes := []any{}, 0
	for i := range s.Size() {
		t, err := succeeded(i)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		v, err := r.value(s, i, t)
		if err != nil {
			return nil, err
		}
		if bytes += len(stringify(v)); bytes > maxListSize {
			return nil, muster.Errorf(muster.TooLarge, "the values are more than %s", muster.Size(maxListSize))
		}
		list = append(list, v)
	}
	return list, nil
}

// bestElement returns the element with the lowest or the highest number, the first one of several. Elements that did not succeed, or have
// no number there, are left out.
func (g *Graph) bestElement(r reference, s *muster.TaskSpec, succeeded func(element int) (*muster.Task, error)) (int, error) {
	key := r.stage + "." + r.best.text
	if i, known := g.best[key]; known {
		return i, nil
	}
	chosen, bestValue := -1, 0.0
	for i := range s.Size() {
		t, err := succeeded(i)
		if err != nil {
			return 0, err
		}
		if t == nil {
			continue
		}
		v, err := r.best.by.value(s, i, t)
		n, isNumber := v.(json.Number)
		if err != nil || !isNumber {
			continue
		}
		f, err := n.Float64()
		if err == nil && (chosen < 0 || f < bestValue && !r.best.max || f > bestValue && r.best.max) {
			chosen, bestValue = i, f
		}
	}
	if chosen < 0 {
		return 0, muster.Errorf(muster.Invalid, "no task of stage %s that succeeded has a number as %s", r.stage, r.best.by)
	}
	if g.best == nil {
		g.best = map[string]int{}
	}
	g.best[key] = chosen
	return chosen, nil
}

// String returns the text of a part of a result, of a metric or of exit_code.
func (p source) String() string {
	if p.field == fieldMetrics {
		return p.field + "." + p.name
	}
	return strings.Join(append([]string{p.field}, p.path...), ".")
}

// value returns a part of a task, which is an element of a stage.
func (p source) value(s *muster.TaskSpec, element int, t *muster.Task) (any, error) {
	switch p.field {
	case fieldExitCode:
		if t.ExitCode == nil {
			return nil, muster.Errorf(muster.Invalid, "task %s has no exit code", t.ID)
		}
		return json.Number(strconv.Itoa(*t.ExitCode)), nil
	case fieldMetrics:
		v, ok := t.Metrics[p.name]
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, muster.Errorf(muster.Invalid, "task %s has no number as metric %q: it must print one, such as ::muster %s=0.5", t.ID, muster.Truncate(p.name), muster.Truncate(p.name))
		}
		return json.Number(strconv.FormatFloat(v, 'g', -1, 64)), nil
	case fieldArtifacts:
		return artifactAttr(t, p)
	case fieldIndex:
		return json.Number(strconv.Itoa(s.Index(element))), nil
	case fieldMatrix:
		return matrixValue(s, element, p.path), nil
	case fieldItem:
		item, ok := itemOf(s, element)
		if !ok {
			return nil, muster.Errorf(muster.Invalid, "task %s has no item", t.ID)
		}
		return itemField(item, strings.Join(append([]string{fieldItem}, p.path...), "."))
	default:
		v, err := resultAt(t, p.path)
		if text, ok := v.(string); ok {
			if u, ok := ownURL(t, text); ok {
				return u, nil
			}
		}
		return v, err
	}
}

// matrixValue returns the value of an element of a matrix on an axis, or an object with those on all axes.
func matrixValue(s *muster.TaskSpec, element int, axis []string) any {
	all := map[string]any{}
	axes := s.Axes()
	for k, v := range s.Combination(element) {
		all[axes[k]] = parseScalar(v)
	}
	if len(axis) > 0 {
		return all[strings.Join(axis, ".")]
	}
	return all
}

func artifactAttr(t *muster.Task, p source) (any, error) {
	a, err := artifact(t, p.name)
	if err != nil {
		return nil, err
	}
	switch p.attr {
	case "sha256":
		return a.SHA256, nil
	case "size":
		return json.Number(strconv.FormatInt(a.Size, 10)), nil
	default:
		return newArtifactURL(t, &a), nil
	}
}

// resultAt returns the part of t's result at path.
func resultAt(t *muster.Task, path []string) (any, error) {
	if len(t.Result) == 0 {
		return nil, muster.Errorf(muster.Invalid, "task %s left no result: it must write result.json to the folder $MUSTER_OUT", t.ID)
	}
	v, err := decode(t.Result)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the result of task %s is not JSON: %w", t.ID, err)
	}
	for i, key := range path {
		next, ok := member(v, key)
		if !ok {
			return nil, muster.Errorf(muster.Invalid, "the result of task %s has no %q", t.ID, strings.Join(path[:i+1], "."))
		}
		v = next
	}
	return v, nil
}

func member(v any, key string) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		m, ok := v[key]
		return m, ok
	case []any:
		if n, err := strconv.Atoi(key); err == nil && n >= 0 && n < len(v) {
			return v[n], true
		}
	}
	return nil, false
}

// Inputs returns the input files of every task of a stage, in the order of its inputs.
// Artifacts of an array, matrix or gang are placed in folders with the elements' numbers:
// model.pt of element 3 becomes 3/model.pt and, with "as: in/m.pt", in/3/m.pt. A
// NotFound error names the task that lacks an artifact. The artifact result.json is the
// result of a task that has no other one with this name: see ResultInput.
func (g *Graph) Inputs(stage int, result ResultFunc) ([]muster.InputFile, error) {
	var all []muster.InputFile
	for _, in := range g.spec.Tasks[stage].Inputs {
		from, known := g.stages[in.From]
		if !known {
			return nil, muster.Errorf(muster.NotFound, "input %s comes from stage %s, which this job does not have", in.Name, in.From)
		}
		t := &g.spec.Tasks[from]
		if t.Size() > muster.MaxInputs-len(all) {
			return nil, muster.Errorf(muster.TooLarge, "the inputs of stage %s are more than %d artifacts", g.spec.Tasks[stage].Name, muster.MaxInputs)
		}
		as := in.As
		if as == "" {
			as = in.Name
		}
		for i := range t.Size() {
			task, ok := result(from, i)
			if !ok {
				return nil, muster.Errorf(muster.NotFound, "the result of stage %s, element %d, is not known", in.From, t.Index(i))
			}
			a, err := inputArtifact(&task, in.Name)
			if err != nil {
				return nil, err
			}
			p := as
			if t.HasElements() {
				p = path.Join(path.Dir(as), strconv.Itoa(t.Index(i)), path.Base(as))
			}
			all = append(all, muster.InputFile{Path: p, SHA256: a.SHA256, Size: a.Size})
		}
	}
	return all, nil
}

// inputArtifact returns the task's artifact with this name, or its result.
func inputArtifact(t *muster.Task, name string) (muster.Artifact, error) {
	a, err := artifact(t, name)
	if err == nil || name != muster.ResultFile {
		return a, err
	}
	if len(t.Result) == 0 {
		return a, muster.Errorf(muster.NotFound, "task %s (%s) left no result: it must write %s to $MUSTER_OUT", t.ID, t.Name, name)
	}
	sum := sha256.Sum256(t.Result)
	return muster.Artifact{Name: name, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(t.Result))}, nil
}

// ResultInput returns the result with this hash that is an input of a stage, or nil. inputs are those of the stage.
func (g *Graph) ResultInput(stage int, inputs []muster.InputFile, sha256 string, result ResultFunc) []byte {
	k := 0
	for _, in := range g.spec.Tasks[stage].Inputs {
		from := g.stages[in.From]
		for i := range g.spec.Tasks[from].Size() {
			if k == len(inputs) {
				return nil
			}
			if k++; in.Name != muster.ResultFile || inputs[k-1].SHA256 != sha256 {
				continue
			}
			if task, ok := result(from, i); ok {
				if a, err := inputArtifact(&task, in.Name); err == nil && a.SHA256 == sha256 {
					return task.Result
				}
			}
		}
	}
	return nil
}

// artifact returns the task's artifact with this name, or a NotFound error.
func artifact(t *muster.Task, name string) (muster.Artifact, error) {
	i := slices.IndexFunc(t.Artifacts, func(a muster.Artifact) bool { return a.Name == name })
	if i < 0 {
		return muster.Artifact{}, muster.Errorf(muster.NotFound, "task %s (%s) has no artifact %q: %s; write it to $MUSTER_OUT, or name it in the outputs of that stage", t.ID, t.Name, name, listArtifacts(t.Artifacts))
	}
	return t.Artifacts[i], nil
}

// listArtifacts returns a text with the names of the first artifacts.
func listArtifacts(list []muster.Artifact) string {
	const maxNames = 5
	if len(list) == 0 {
		return "it has none"
	}
	var names []string
	for _, a := range list[:min(len(list), maxNames)] {
		names = append(names, muster.Truncate(a.Name))
	}
	text := "it has " + strings.Join(names, ", ")
	if n := len(list) - len(names); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
