package dag

import (
	"encoding/json"
	"fmt"
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
// values; ${index} and ${matrix…} stay for Bind. The spec is normalized, and the
// referenced stages have succeeded. An Invalid error names the field, the reference and
// what is missing. The copy shares unchanged parts with s.
func Resolve(s *muster.Spec, stage int, result ResultFunc) (*muster.TaskSpec, error) {
	isStageRef := stageRefs(s)
	isRef := func(body string) bool { return isElementRef(body) || isStageRef(body) }
	resolved, err := rewrite(&s.Tasks[stage], func(path, text string, whole bool) (any, error) {
		parts := split(text, isRef)
		var resolved []part
		for i, p := range parts {
			if !p.ref || isElementRef(p.text) {
				if resolved != nil {
					resolved = append(resolved, p)
				}
				continue
			}
			v, err := resolveRef(s, p.text, result)
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
		err = fanOut(s, resolved, result)
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

func resolveRef(s *muster.Spec, body string, result ResultFunc) (any, error) {
	r, _ := parse(body)
	if r.problem != "" {
		return nil, muster.Errorf(muster.Invalid, "%s", r.problem)
	}
	i := stageIndex(s, r.stage)
	element, err := r.elementPosition(&s.Tasks[i])
	switch {
	case err != nil:
		return nil, err
	case r.all:
		return r.list(s.Tasks[i].Size(), func(element int) (muster.Task, bool) { return result(i, element) })
	}
	t, ok := result(i, element)
	if !ok {
		return nil, muster.Errorf(muster.Invalid, "the result of stage %s is not known", r.stage)
	}
	return r.value(t)
}

// Limits of a list of values.
const (
	maxListElements = 10_000
	maxListSize     = muster.MaxResultSize // bytes of JSON
)

// list returns the values of those elements of a stage that have succeeded, in their order.
func (r reference) list(size int, result func(element int) (muster.Task, bool)) (any, error) {
	list, bytes := []any{}, 0
	for i := range size {
		t, ok := result(i)
		if !ok || t.State != muster.Succeeded {
			continue
		}
		v, err := r.value(t)
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

// value returns what r refers to in a task.
func (r reference) value(t muster.Task) (any, error) {
	switch r.field {
	case fieldExitCode:
		if t.ExitCode == nil {
			return nil, muster.Errorf(muster.Invalid, "task %s has no exit code", t.ID)
		}
		return json.Number(strconv.Itoa(*t.ExitCode)), nil
	case fieldArtifacts:
		return artifactAttr(&t, r)
	default:
		v, err := resultAt(&t, r.path)
		if text, ok := v.(string); ok {
			if u, ok := ownURL(&t, text); ok {
				return u, nil
			}
		}
		return v, err
	}
}

func artifactAttr(t *muster.Task, r reference) (any, error) {
	a, err := artifact(t, r.name)
	if err != nil {
		return nil, err
	}
	switch r.attr {
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
// NotFound error names the task that lacks an artifact.
func Inputs(s *muster.Spec, stage int, result ResultFunc) ([]muster.InputFile, error) {
	var all []muster.InputFile
	for _, in := range s.Tasks[stage].Inputs {
		from := stageIndex(s, in.From)
		if from < 0 {
			return nil, muster.Errorf(muster.NotFound, "input %s comes from stage %s, which this job does not have", in.Name, in.From)
		}
		t := &s.Tasks[from]
		if t.Size() > muster.MaxInputs-len(all) {
			return nil, muster.Errorf(muster.TooLarge, "the inputs of stage %s are more than %d artifacts", s.Tasks[stage].Name, muster.MaxInputs)
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
			a, err := artifact(&task, in.Name)
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
