package kind

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// maxProblems is the number of reported problems of one input.
const maxProblems = 20

// explainer finds out why a schema does not allow an input. The library tells which parts of the schema do not allow which values; the
// messages consist of what the schema demands and of the values.
type explainer struct {
	schema   *inputSchema
	input    any
	resolved bool                            // references are resolved
	compiled map[string]*jsonschema.Resolved // parts of the schema, by their places

	wrong    []problem
	unjudged int // problems with values that have references
}

// problem is a problem with a value.
type problem struct {
	muster.FieldError

	at      []string // path of the value
	keyword string   // which does not allow it
	names   []string // of required: the missing field; of type: the expected types
}

// part is a part of a schema and a value.
type part struct {
	schema any
	place  string // of the schema
	value  any
	at     []string // path of the value
}

func newExplainer(s *inputSchema, input any, resolved bool) *explainer {
	return &explainer{schema: s, input: input, resolved: resolved, compiled: map[string]*jsonschema.Resolved{"": s.compiled}}
}

// problems returns the problems in the order of the fields.
func (e *explainer) problems() []muster.FieldError {
	e.explain(part{schema: e.schema.root, value: e.input})
	if len(e.wrong) == 0 && e.resolved {
		e.add(part{}, "", "", "it does not match the kind's schema")
	}
	slices.SortStableFunc(e.wrong, func(a, b problem) int { return strings.Compare(a.Path, b.Path) })
	var out []muster.FieldError
	for _, p := range e.wrong {
		if len(out) < maxProblems && (len(out) == 0 || out[len(out)-1] != p.FieldError) {
			out = append(out, p.FieldError)
		}
	}
	return out
}

func (e *explainer) add(p part, keyword, hint, format string, args ...any) {
	e.wrong = append(e.wrong, problem{
		FieldError: muster.FieldError{Path: e.path(p.at), Message: fmt.Sprintf(format, args...), Hint: hint}, at: p.at, keyword: keyword,
	})
}

// path returns the path of a value of the input, as in a spec.
func (e *explainer) path(at []string) string {
	var b strings.Builder
	b.WriteString("input")
	v := e.input
	for _, step := range at {
		if _, list := v.([]any); list {
			b.WriteString("[" + step + "]")
		} else {
			b.WriteString("." + muster.Truncate(step))
		}
		v = child(v, step)
	}
	return b.String()
}

func child(v any, step string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// descendant returns the value at a JSON pointer.
func descendant(v any, pointer string) any {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if step != "" {
			v = child(v, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		}
	}
	return v
}

var reference = lazyregexp.New(`\$\{[^}]*\}`)

// hasReference reports whether a value contains references.
func hasReference(v any) bool {
	if s, ok := v.(string); ok {
		return reference.Get().MatchString(s)
	}
	for part := range members(v) {
		if hasReference(part) {
			return true
		}
	}
	return false
}

// allows reports whether a part of the schema allows a value.
func (e *explainer) allows(p part) bool {
	c, ok := e.compiled[p.place]
	if !ok {
		var err error
		if c, err = compileParts(p.schema); err != nil {
			return true // never: the whole schema was compiled
		}
		e.compiled[p.place] = c
	}
	return c.Validate(plain(p.value)) == nil
}

// conforms reports whether a keyword alone allows a value.
func (e *explainer) conforms(p part, alone map[string]any, keyword string) bool {
	return e.allows(part{schema: alone, place: p.place + "/" + keyword, value: p.value})
}

// explain adds the problems of a value that its schema does not allow.
func (e *explainer) explain(p part) {
	if len(e.wrong) > maxProblems || e.allows(p) {
		return
	}
	s, ok := p.schema.(map[string]any)
	if !ok { // false
		e.add(p, "", "", "unknown field")
		return
	}
	if types, ok := s["type"]; ok && !e.conforms(p, map[string]any{"type": types}, "type") {
		e.keyword(p, s, "type")
		return // other keywords would say the same of a value of another type
	}
	before := len(e.wrong) + e.unjudged
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		if keyword != "unevaluatedProperties" {
			e.keyword(p, s, keyword)
		}
	}
	if s["unevaluatedProperties"] != nil {
		e.unevaluated(p, s, len(e.wrong)+e.unjudged == before)
	}
}

// keyword adds the problems of a value with a keyword of its schema.
func (e *explainer) keyword(p part, s map[string]any, keyword string) {
	sub := func(schema any, place string) part {
		return part{schema: schema, place: p.place + "/" + keyword + place, value: p.value, at: p.at}
	}
	object, _ := p.value.(map[string]any)
	list, _ := p.value.([]any)
	switch keyword {
	case "allOf":
		parts, _ := s[keyword].([]any)
		for i, schema := range parts {
			e.explain(sub(schema, "/"+strconv.Itoa(i)))
		}
	case "then", "else":
		if condition := s["if"]; condition != nil && e.allows(part{schema: condition, place: p.place + "/if", value: p.value}) == (keyword == "then") {
			e.explain(sub(s[keyword], ""))
		}
	case "dependentSchemas", "properties", "patternProperties", "additionalProperties", "propertyNames":
		for _, name := range slices.Sorted(maps.Keys(object)) {
			e.field(p, s, keyword, name)
		}
	case "prefixItems", "items", "unevaluatedItems":
		prefix, _ := s["prefixItems"].([]any)
		for i, v := range list {
			item := sub(s[keyword], "")
			switch {
			case keyword == "prefixItems" && i < len(prefix):
				item = sub(prefix[i], "/"+strconv.Itoa(i))
			case keyword != "items" || i < len(prefix):
				continue
			}
			item.value, item.at = v, append(slices.Clone(p.at), strconv.Itoa(i))
			e.explain(item)
		}
	case "required":
		if object != nil {
			for _, name := range texts(s[keyword]) {
				if _, ok := object[name]; !ok {
					e.missing(p, name)
				}
			}
		}
	case "dependentRequired":
		e.dependentRequired(p, s[keyword], object)
	default:
		e.constraint(p, s, keyword)
	}
}

func (e *explainer) missing(p part, name string) {
	p.at = append(slices.Clone(p.at), name)
	e.add(p, "required", "", "required")
	e.wrong[len(e.wrong)-1].names = []string{name}
}

// field adds the problems of a field with a keyword that has schemas of fields.
func (e *explainer) field(p part, s map[string]any, keyword, name string) {
	field := part{value: child(p.value, name), at: append(slices.Clone(p.at), name), place: p.place + "/" + keyword}
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	explain := func(schema any, place string) {
		field.schema, field.place = schema, p.place+"/"+keyword+place
		e.explain(field)
	}
	switch keyword {
	case "properties":
		if schema, ok := properties[name]; ok {
			explain(schema, "/"+pointerToken(name))
		}
	case "patternProperties":
		for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
			if e.schema.patterns[pattern].MatchString(name) {
				explain(patterns[pattern], "/"+pointerToken(pattern))
			}
		}
	case "additionalProperties":
		if e.declares(map[string]any{"properties": properties, "patternProperties": patterns}, name) {
			return
		}
		if s[keyword] == false {
			e.unknownField(field, properties)
			return
		}
		explain(s[keyword], "")
	case "propertyNames":
		field.value = name
		explain(s[keyword], "")
	case "dependentSchemas":
		if schema, ok := s[keyword].(map[string]any)[name]; ok {
			field.value, field.at = p.value, p.at
			explain(schema, "/"+pointerToken(name))
		}
	}
}

// dependentRequired adds the problems of fields that need others.
func (e *explainer) dependentRequired(p part, needs any, object map[string]any) {
	lists, _ := needs.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		if _, ok := object[name]; !ok {
			continue
		}
		lacks := slices.DeleteFunc(texts(lists[name]), func(n string) bool { _, ok := object[n]; return ok })
		if len(lacks) > 0 {
			e.add(part{at: append(slices.Clone(p.at), name)}, "dependentRequired", "", "it also needs %s", muster.JoinWords(lacks, "and"))
		}
	}
}

// unevaluated adds the problems of fields that a schema does not know. If the object has no other problem, it is one of them.
func (e *explainer) unevaluated(p part, s map[string]any, only bool) {
	object, _ := p.value.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		field := part{schema: s["unevaluatedProperties"], place: p.place + "/unevaluatedProperties", value: object[name], at: append(slices.Clone(p.at), name)}
		if e.declares(s, name) {
			if !only {
				continue
			}
			rest := maps.Clone(object)
			delete(rest, name)
			if !e.allows(part{schema: p.schema, place: p.place, value: rest}) {
				continue
			}
		}
		if field.schema == false {
			e.unknownField(field, properties)
		} else {
			e.explain(field)
		}
	}
}

// declares reports whether a schema, or a part of it for the same value, has a field.
func (e *explainer) declares(schema any, name string) bool {
	s, _ := schema.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	_, ok := properties[name]
	if ok || s["additionalProperties"] != nil {
		return true
	}
	for pattern := range patterns {
		if e.schema.patterns[pattern].MatchString(name) {
			return true
		}
	}
	for keyword, v := range s {
		parts := []any{v}
		switch keyword {
		case "allOf", "anyOf", "oneOf", "dependentSchemas":
			parts = slices.Collect(members(v))
		case "if", "then", "else":
		default:
			continue
		}
		if slices.ContainsFunc(parts, func(part any) bool { return e.declares(part, name) }) {
			return true
		}
	}
	return false
}

// unknownField adds a problem with a field that is not among the properties.
func (e *explainer) unknownField(p part, properties map[string]any) {
	known := slices.Sorted(maps.Keys(properties))
	hint := muster.DidYouMean(p.at[len(p.at)-1], known)
	if hint == "" && len(known) > 0 && len(known) <= 12 {
		hint = "known are " + strings.Join(known, ", ")
	}
	e.add(p, "", hint, "unknown field")
}

// constraint adds the problem of a value with a keyword that has no schemas of its parts.
func (e *explainer) constraint(p part, s map[string]any, keyword string) {
	if keywords[keyword] == annotation && keyword != "format" || keyword == "if" || keyword == "minContains" || keyword == "maxContains" {
		return
	}
	alone := map[string]any{keyword: s[keyword]}
	if keyword == "contains" {
		for _, name := range []string{"minContains", "maxContains"} {
			if n, ok := s[name]; ok {
				alone[name] = n
			}
		}
	}
	switch {
	case e.conforms(p, alone, keyword):
		return
	case !e.resolved && hasReference(p.value):
		e.unjudged++
		return
	}
	switch keyword {
	case "anyOf", "oneOf":
		e.alternatives(p, keyword, slices.Collect(members(s[keyword])))
	case "not":
		e.add(p, keyword, "", "%s", notMessage(s[keyword]))
	case "type":
		e.typeProblem(p, typesOf(s[keyword]))
	case "enum":
		want := slices.Collect(members(s[keyword]))
		e.add(p, keyword, nearestHint(p.value, want), "expected %s, got %s", muster.JoinWords(formatValues(want), "or"), describe(p.value))
	case "pattern":
		e.patternProblem(p, s)
	default:
		e.add(p, keyword, "", "%s", message(keyword, s[keyword], p.value))
	}
}

func (e *explainer) typeProblem(p part, types []string) {
	var want []string
	for _, t := range types {
		want = append(want, cmp.Or(typeTexts[t], t))
	}
	e.add(p, "type", "", "expected %s, got %s", muster.JoinWords(want, "or"), describe(p.value))
	e.wrong[len(e.wrong)-1].names = types
}

// patternProblem adds a problem with a string that does not match a pattern. It shows the schema's examples or description of the field, which are easier to read.
func (e *explainer) patternProblem(p part, s map[string]any) {
	examples, _ := s["examples"].([]any)
	about, _ := s["description"].(string)
	switch {
	case len(examples) > 0:
		e.add(p, "pattern", nearestHint(p.value, examples), "expected a string such as %s, got %s", muster.JoinWords(formatValues(examples), "or"), describe(p.value))
	case about != "":
		e.add(p, "pattern", "", "%s does not match the description %q", describe(p.value), muster.Truncate(about))
	default:
		e.add(p, "pattern", "", "%s does not match the pattern %s", describe(p.value), s["pattern"])
	}
}

// alternatives adds problems with a value that matches none of several schemas, or more than one.
func (e *explainer) alternatives(p part, keyword string, list []any) {
	var all [][]problem // of each alternative
	var taken []string  // fields that the matching ones require
	matching := 0
	for i, schema := range list {
		alternative := part{schema: schema, place: p.place + "/" + keyword + "/" + strconv.Itoa(i), value: p.value, at: p.at}
		if e.allows(alternative) {
			matching++
			taken = append(taken, texts(child(schema, "required"))...)
			continue
		}
		inner := *e
		inner.wrong = nil
		inner.explain(alternative)
		all = append(all, inner.wrong)
	}
	switch {
	case matching > 0 && len(taken) > 1:
		e.add(p, keyword, "", "%s", muster.JoinWords(taken, "and")+" exclude each other: keep one of them")
		return
	case matching > 0:
		e.add(p, keyword, "", "it matches more than one alternative: remove a field")
		return
	}
	if lacks := common(all, "required", len(p.at)+1, " and "); lacks != nil {
		e.add(p, "required", "", "write %s", muster.JoinWords(lacks, "or"))
		return
	}
	if types := common(all, "type", len(p.at), ""); types != nil {
		e.typeProblem(p, types)
		return
	}
	// The alternative with the deepest problem is probably the intended one.
	best := slices.MaxFunc(all, func(a, b []problem) int { return depth(a) - depth(b) })
	e.wrong = append(e.wrong, best...)
}

// common returns the names of each alternative, if all problems of all of them are with a keyword at a depth, else nil. With a separator, the
// names of an alternative are joined.
func common(all [][]problem, keyword string, depth int, separator string) []string {
	var names []string
	for _, wrong := range all {
		var own []string
		for _, w := range wrong {
			if w.keyword != keyword || len(w.at) != depth || len(w.names) == 0 {
				return nil
			}
			own = append(own, w.names...)
		}
		if len(own) == 0 {
			return nil
		}
		if separator != "" {
			own = []string{strings.Join(own, separator)}
		}
		names = append(names, own...)
	}
	return names
}

func depth(wrong []problem) int {
	d := -1
	for _, w := range wrong {
		n := len(w.at)
		if w.keyword == "required" && len(w.names) > 0 {
			n--
		}
		if w.keyword != "type" {
			n++
		}
		d = max(d, n)
	}
	return d
}
