package dag

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

// substituteFunc returns the replacement of a text at a path. whole is true where the
// replacement may be a JSON value of any type.
type substituteFunc func(path, text string, whole bool) (any, error)

// rewrite returns a copy of t with every text that may have references substituted, in a
// fixed order. It stops at the first error.
func rewrite(t *muster.TaskSpec, sub substituteFunc) (*muster.TaskSpec, error) {
	c := *t
	if err := rewriteTo(&c, t, sub); err != nil {
		return nil, err
	}
	return &c, nil
}

// rewriteTo is rewrite into a copy of t.
func rewriteTo(c, t *muster.TaskSpec, sub substituteFunc) error {
	w := rewriter{sub: sub}
	if t.Run != nil {
		c.Run = &muster.Command{Shell: w.text("run", t.Run.Shell), Argv: w.list("run", t.Run.Argv)}
	}
	if t.Script != nil {
		script := *t.Script
		script.Args = w.list("script.args", script.Args)
		c.Script = &script
	}
	c.Image = w.text("image", t.Image)
	c.Env = maps.Clone(t.Env)
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		c.Env[name] = w.text("env."+name, t.Env[name])
	}
	c.Where.Tags = w.list("where.tags", t.Where.Tags)
	c.Outputs = w.list("outputs", t.Outputs)
	if len(t.Input) > 0 {
		c.Input = w.json("input", t.Input)
	}
	return w.err
}

// rewriter substitutes until the first error.
type rewriter struct {
	sub substituteFunc
	err error
}

func (w *rewriter) text(path, s string) string {
	if w.err != nil || s == "" {
		return s
	}
	v, err := w.sub(path, s, false)
	if err != nil {
		w.err = err
		return s
	}
	return stringify(v)
}

func (w *rewriter) list(path string, l []string) []string {
	out := slices.Clone(l)
	for i, s := range l {
		out[i] = w.text(fmt.Sprintf("%s[%d]", path, i), s)
	}
	return out
}

func (w *rewriter) json(path string, raw json.RawMessage) json.RawMessage {
	if len(raw) > 0 && raw[0] == '{' && !bytes.Contains(raw, []byte("$")) && !bytes.Contains(raw, []byte(`\u`)) {
		return raw // no references; decoding a large input takes many times its size
	}
	v, err := decode(raw)
	if err != nil {
		w.err = muster.Errorf(muster.Invalid, "%s is not JSON: %w", path, err)
		return raw
	}
	changed := false
	v = w.value(path, v, &changed)
	if w.err != nil || !changed {
		return raw
	}
	return encode(v)
}

func (w *rewriter) value(path string, v any, changed *bool) any {
	switch v := v.(type) {
	case string:
		if w.err != nil {
			return v
		}
		got, err := w.sub(path, v, true)
		if err != nil {
			w.err = err
			return v
		}
		if got != any(v) {
			*changed = true
		}
		return got
	case []any:
		for i := range v {
			v[i] = w.value(joinPath(path, "["+strconv.Itoa(i)+"]"), v[i], changed)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			v[k] = w.value(joinPath(path, "."+k), v[k], changed)
		}
	}
	return v
}

// joinPath returns the path of a part of an input or, where that would be too long, the path of its parent:
// names may be as long as a spec, and would be repeated in the path of each value below them.
func joinPath(path, part string) string {
	const limit = 250 // bytes
	if len(path)+len(part) > limit {
		return path
	}
	return path + part
}

// decode decodes JSON and keeps the spelling of numbers.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// encode encodes a value that decode returned.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("dag: a decoded JSON value cannot be encoded: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// stringify returns a string as it is, and other values as compact JSON.
func stringify(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case artifactURL:
		return v.plain
	}
	return string(encode(v))
}
