package mloc

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// maxResolved is how many bytes references may bring into one task.
const maxResolved = MaxMessage / 2

// ErrPending says that a reference leads to a stage whose result is not there yet: the task waits.
var ErrPending = errors.New("a stage that is referred to has not ended yet")

// Upstream is what a task can see of one stage of its submission.
type Upstream struct {
	TaskID  string
	Done    bool
	Wrapper Object // nil if there is none
}

// Resolve replaces the references ${stage.…} in the spec of a task of a pipeline, and gives it the wrappers of all
// stages that are done as _upstreamResults. A text that is one reference and nothing else takes the value with its type. The
// spec itself is not changed. The error is errPending, or a *muster.Error of code InvalidSpec with which the task fails.
func Resolve(s Object, stages map[string]Upstream) (Object, error) {
	r := resolver{stages: stages, remaining: maxResolved}
	out, _ := MapTexts(s, r.text).(Object)
	if r.err != nil {
		return nil, r.err
	}
	results := Object{}
	for name, st := range stages {
		if !st.Done || st.Wrapper == nil {
			continue
		}
		if r.remaining -= len(EncodeString(st.Wrapper)); r.remaining < 0 {
			return nil, r.tooLarge()
		}
		results[name] = st.Wrapper
	}
	if len(results) > 0 {
		out["_upstreamResults"] = results
	}
	return out, nil
}

type resolver struct {
	stages    map[string]Upstream
	remaining int   // bytes
	err       error // of the first reference that leads nowhere
}

func (r *resolver) tooLarge() error {
	return muster.Errorf(muster.InvalidSpec, "the results of earlier stages that this one refers to are larger than %d bytes: pass them as files", maxResolved)
}

// reference is one in a text, with its body.
var reference = lazyregexp.New(`\$\{([^}]+)\}`)

func (r *resolver) text(s string) any {
	if m := reference.Get().FindStringSubmatch(s); m != nil && m[0] == s {
		return r.value(m[1])
	}
	return reference.Get().ReplaceAllStringFunc(s, func(ref string) string {
		return formatValue(r.value(ref[len("${") : len(ref)-len("}")]))
	})
}

// value returns the value that a reference leads to, nil after an error.
func (r *resolver) value(body string) (v any) {
	if r.err == nil {
		v, r.err = r.lookup(body)
	}
	return v
}

func (r *resolver) lookup(body string) (any, error) {
	name, path, dotted := strings.Cut(strings.TrimSpace(body), ".")
	if !dotted {
		return nil, muster.Errorf(muster.InvalidSpec, "Invalid stage reference '%s': write ${stage.result.field} or ${stage.task_id}", Truncate(body, MaxID))
	}
	st, known := r.stages[name]
	if !known {
		return nil, muster.Errorf(muster.InvalidSpec, "Unknown stage reference '%s'", Truncate(name, MaxID))
	}
	if path == "task_id" {
		return st.TaskID, nil
	}
	if !st.Done {
		return nil, ErrPending
	}
	if st.Wrapper == nil {
		return nil, muster.Errorf(muster.InvalidSpec, "Missing value for reference '%s': stage %s is done, but its result was delivered elsewhere and not to this host", Truncate(body, MaxID), name)
	}
	v := At(st.Wrapper, path)
	if v == nil {
		return nil, muster.Errorf(muster.InvalidSpec, "Missing value for reference '%s'", Truncate(body, 4*MaxID))
	}
	if r.remaining -= len(EncodeString(v)); r.remaining < 0 {
		return nil, r.tooLarge()
	}
	return v, nil
}

// formatValue is a value in the middle of a text. Scalars are as Python writes them, which is what hosts do.
func formatValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		if v {
			return "True"
		}
		return "False"
	case json.Number:
		return v.String()
	default:
		return EncodeString(v)
	}
}
