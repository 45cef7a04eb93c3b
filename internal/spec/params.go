package spec

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

const (
	paramsField = "params"
	maxParam    = 4 << 10 // bytes of a value
	maxExpanded = muster.MaxSpecSize
)

var (
	paramName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	paramRef  = lazyregexp.New(`(\$*)\$\{params\.([^${}]*)\}`)
)

// params has the parameters of one document: their values, and those given from outside.
type params struct {
	values map[string]*node
	grown  int  // bytes that the references took so far
	faulty bool // a value is missing or wrong
}

// expandParams replaces the references to parameters in a document that declares some, and adds given values to the declarations.
// References in the text of a script stay, because it may be the content of a file in any language. ok is false if a value is missing
// or wrong: the problems of other fields would follow from it.
func (d *decoder) expandParams(n *node, given map[string]string) (expanded *node, ok bool) {
	declared := n.field(paramsField)
	if declared == nil || declared.kind != object || len(declared.fields) > muster.MaxParams {
		return n, true // decodeMap reports other kinds
	}
	p := &params{values: make(map[string]*node, len(declared.fields))}
	block := &node{kind: object, at: declared.at}
	for _, f := range declared.fields {
		if !paramName.Get().MatchString(f.name) || len(f.name) > muster.MaxNameSize {
			d.report(joinPath(paramsField, muster.Truncate(f.name)), f.at, "", "invalid name of a parameter: use letters, digits, _ and -, beginning with a letter, at most %d", muster.MaxNameSize)
			p.faulty = true
			continue
		}
		f.value = d.param(p, f, given)
		block.fields = append(block.fields, f)
	}
	if p.faulty {
		return n, false
	}
	out := *n
	out.fields = slices.Clone(n.fields)
	for i := range out.fields {
		if f := &out.fields[i]; f.name == paramsField {
			f.value = block
		} else {
			f.value = d.expand(p, f.value, f.name)
		}
	}
	return &out, true
}

// param reads a declaration, which is an object or only the default, records the value, and returns it as an object.
func (d *decoder) param(p *params, f field, given map[string]string) *node {
	at, path := f.value.at, joinPath(paramsField, f.name)
	decl := *f.value
	if decl.scalar() {
		decl = node{kind: object, at: at, fields: []field{{name: "default", at: at, value: f.value}}}
	}
	decl.fields = slices.Clone(decl.fields)
	value := decl.field("value")
	if value == nil {
		value = decl.field("default")
	}
	var kind string
	switch t := decl.field("type"); {
	case t != nil && slices.Contains(muster.ParamTypes, t.text):
		kind = t.text
	case t != nil:
		d.report(joinPath(path, "type"), t.at, "", "unknown type %s: write %s", t.describe(), strings.Join(muster.ParamTypes, ", "))
		p.faulty = true
		return &decl
	default:
		kind = typeOf(value)
		decl.fields = append(decl.fields, field{name: "type", at: at, value: &node{kind: text, at: at, text: kind}})
	}
	if s, ok := given[f.name]; ok {
		value = parseParam(kind, s, at)
		decl.fields = slices.DeleteFunc(decl.fields, func(f field) bool { return f.name == "value" })
		decl.fields = append(decl.fields, field{name: "value", at: at, value: value})
	}
	before := len(d.wrong)
	switch {
	case value == nil || value.kind == null:
		d.report(path, f.at, "give it when you submit: -p "+f.name+"=…", "the parameter %s has no value", f.name)
	default:
		value = asType(kind, value)
		for _, name := range []string{"default", "value"} {
			for i := range decl.fields {
				if decl.fields[i].name == name {
					decl.fields[i].value = asType(kind, decl.fields[i].value)
				}
			}
		}
		d.checkParam(&decl, f.name, path, kind, value)
	}
	p.faulty = p.faulty || len(d.wrong) > before
	p.values[f.name] = value
	return &decl
}

// typeOf returns the type of a parameter without one: that of its default.
func typeOf(n *node) string {
	switch {
	case n == nil:
		return muster.ParamString
	case n.kind == number:
		return muster.ParamNumber
	case n.kind == boolean:
		return muster.ParamBoolean
	default:
		return muster.ParamString
	}
}

// parseParam returns a value that was given as a text.
func parseParam(kind, s string, at place) *node {
	n := &node{kind: text, at: at, text: s}
	switch kind {
	case muster.ParamInteger, muster.ParamNumber:
		if digits, ok := jsonNumber(s); ok {
			n.kind, n.number = number, digits
		}
	case muster.ParamBoolean:
		if s == "true" || s == "false" {
			n.kind = boolean
		}
	}
	return n
}

// asType returns the value of a text parameter as a text: 3.10 is one, and so is true.
func asType(kind string, n *node) *node {
	if kind == muster.ParamString && n.scalar() {
		return &node{kind: text, at: n.at, text: n.text}
	}
	return n
}

// checkParam reports a value that its declaration does not allow.
func (d *decoder) checkParam(decl *node, name, path, kind string, value *node) {
	fits := false
	switch kind {
	case muster.ParamString:
		fits = value.kind == text
	case muster.ParamInteger:
		_, err := strconv.ParseInt(value.number, 10, 64)
		fits = value.kind == number && err == nil
	case muster.ParamNumber:
		fits = value.kind == number
	case muster.ParamBoolean:
		fits = value.kind == boolean
	}
	article := "a "
	if kind == muster.ParamInteger {
		article = "an "
	}
	if !fits {
		d.report(path, value.at, "", "the parameter %s must be %s%s, got %s", name, article, kind, value.describe())
		return
	}
	if len(value.text) > maxParam {
		d.report(path, value.at, "pass large inputs as files", "the value of the parameter %s is %d bytes: the maximum is %d", name, len(value.text), maxParam)
		return
	}
	if strings.Contains(value.text, "${") {
		d.report(path, value.at, "", "the value of the parameter %s contains ${: references are not allowed in it", name)
		return
	}
	if enum := decl.field("enum"); enum != nil && enum.kind == list && !slices.ContainsFunc(enum.items, func(n *node) bool { return asType(kind, n).text == value.text }) {
		words := make([]string, len(enum.items))
		for i, item := range enum.items {
			words[i] = item.text
		}
		d.report(path, value.at, "", "the parameter %s is %s: the allowed values are %s", name, value.describe(), muster.Truncate(strings.Join(words, ", ")))
	}
	for _, bound := range []struct {
		name string
		sign int // of value and bound compared, where the value is outside
	}{{"minimum", -1}, {"maximum", 1}} {
		limit := decl.field(bound.name)
		if limit != nil && limit.kind == number && value.kind == number && cmp.Compare(value.float(), limit.float()) == bound.sign {
			d.report(path, value.at, "", "the parameter %s is %s: the %s is %s", name, value.text, bound.name, limit.text)
		}
	}
}

// float returns the value of a number.
func (n *node) float() float64 {
	f, _ := strconv.ParseFloat(n.number, 64) // JSON's numbers are valid here
	return f
}

// expand returns n with the references in its texts replaced. A text that is one reference becomes the value with its type.
func (d *decoder) expand(p *params, n *node, path string) *node {
	switch {
	case n.kind == text && strings.Contains(n.text, "${params."):
		return d.expandText(p, n, path)
	case n.items != nil:
		out := *n
		out.items = make([]*node, len(n.items))
		for i, item := range n.items {
			out.items[i] = d.expand(p, item, indexPath(path, i))
		}
		return &out
	case n.fields != nil:
		out := *n
		out.fields = slices.Clone(n.fields)
		for i := range out.fields {
			out.fields[i].value = d.expand(p, out.fields[i].value, joinPath(path, out.fields[i].name))
		}
		return &out
	}
	return n
}

var scriptText = lazyregexp.New(`^(tasks\[[0-9]+\]\.)?script(\.text)?$`)

func (d *decoder) expandText(p *params, n *node, path string) *node {
	if scriptText.Get().MatchString(path) {
		return n
	}
	refs := paramRef.Get()
	if m := refs.FindStringSubmatch(n.text); m != nil && m[0] == n.text && m[1] == "" {
		if v := p.value(d, m[2], n, path); v != nil {
			out := *v
			out.at = n.at
			return &out
		}
		return n
	}
	out := *n
	out.text = refs.ReplaceAllStringFunc(n.text, func(ref string) string {
		m := refs.FindStringSubmatch(ref)
		if len(m[1])%2 == 1 { // $${ stands for ${, which package dag decodes
			return ref
		}
		if v := p.value(d, m[2], n, path); v != nil {
			if strings.HasPrefix(v.text, "{") {
				return m[1] + v.text
			}
			return m[1][len(m[1])/2:] + v.text // a pair stands for one
		}
		return ref
	})
	return &out
}

// value returns the value of a parameter, or reports that it does not exist.
func (p *params) value(d *decoder, name string, n *node, path string) *node {
	if v := p.values[name]; v != nil {
		if p.grown > maxExpanded {
			return v
		}
		if p.grown += len(v.text); p.grown > maxExpanded {
			d.report(path, n.at, "pass large inputs as files", "the values of the parameters take more than %s where they are used", muster.Size(maxExpanded))
			p.empty()
		}
		return p.values[name]
	}
	hint := "for a literal text write $${"
	if near := muster.Nearest(name, slices.Sorted(maps.Keys(p.values))); near != "" {
		hint = didYouMean(near)
	}
	d.report(path, n.at, hint, "${params.%s}: there is no such parameter", muster.Truncate(name))
	return nil
}

// empty makes all values empty, so that a document that is too large takes no more memory.
func (p *params) empty() {
	for name, v := range p.values {
		p.values[name] = &node{kind: reported, at: v.at}
	}
}

// CheckParams returns an Invalid error for a given value whose parameter none of the specs declares.
func CheckParams(given map[string]string, specs []*muster.Spec) error {
	var known []string
	for _, s := range specs {
		known = slices.AppendSeq(known, maps.Keys(s.Params))
	}
	slices.Sort(known)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) {
			continue
		}
		if near := muster.Nearest(name, known); near != "" {
			return muster.Errorf(muster.Invalid, "no parameter %s: %s", muster.Truncate(name), didYouMean(near))
		}
		if len(known) == 0 {
			return muster.Errorf(muster.Invalid, "no parameter %s: the spec declares none; add params: {%[1]s: {type: string}}", muster.Truncate(name))
		}
		return muster.Errorf(muster.Invalid, "no parameter %s: the spec has %s", muster.Truncate(name), muster.Truncate(strings.Join(slices.Compact(known), ", ")))
	}
	return nil
}
