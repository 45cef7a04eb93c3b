package kind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// maxProblems is the number of reported problems of one input.
const maxProblems = 20

// errorTranslator translates validation errors of an input to messages for users.
type errorTranslator struct {
	kind  *Kind
	input any

	resolved bool // references are resolved
	wrong    []muster.FieldError
}

// problems returns the problems in the order of the fields.
func (t *errorTranslator) problems() []muster.FieldError {
	slices.SortStableFunc(t.wrong, func(a, b muster.FieldError) int { return strings.Compare(a.Path, b.Path) })
	t.wrong = slices.CompactFunc(t.wrong, func(a, b muster.FieldError) bool { return a.Path == b.Path && a.Message == b.Message })
	return t.wrong[:min(len(t.wrong), maxProblems)]
}

func (t *errorTranslator) add(at []string, hint, format string, args ...any) {
	t.wrong = append(t.wrong, muster.FieldError{Path: t.path(at), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// path returns the path of a value of the input, as in a spec.
func (t *errorTranslator) path(at []string) string {
	var b strings.Builder
	b.WriteString("input")
	v := t.input
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

func (t *errorTranslator) value(at []string) any {
	v := t.input
	for _, step := range at {
		v = child(v, step)
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

// translate translates an error and its causes.
func (t *errorTranslator) translate(e *jsonschema.ValidationError) {
	at := e.InstanceLocation
	v := t.value(at)
	switch k := e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		for _, cause := range e.Causes {
			t.translate(cause)
		}
	case *kind.Required:
		for _, name := range k.Missing {
			t.add(append(slices.Clone(at), name), "", "required")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			t.unknownField(append(slices.Clone(at), name))
		}
	case *kind.FalseSchema:
		t.unknownField(at)
	case *kind.DependentRequired:
		t.add(append(slices.Clone(at), k.Prop), "", "it also needs %s", muster.JoinWords(k.Missing, "and"))
	default:
		if !t.resolved && hasReference(v) {
			return
		}
		t.valueProblem(e, v)
	}
}

// valueProblem adds a problem with a value.
func (t *errorTranslator) valueProblem(e *jsonschema.ValidationError, v any) {
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		t.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			t.alternatives(e)
			return
		}
		t.add(at, "", "%s", t.conflictMessage(e.SchemaURL, k.Subschemas))
	case *kind.Not:
		t.add(at, "", "%s", t.notMessage(e.SchemaURL))
	case *kind.Type:
		t.add(at, "", "expected %s, got %s", muster.JoinWords(typeNames(k.Want), "or"), describe(v))
	case *kind.Enum:
		t.add(at, nearestHint(v, k.Want), "%s", message(e))
	case *kind.Pattern:
		t.patternProblem(e, k)
	default:
		t.add(at, "", "%s", message(e))
	}
}

// patternProblem adds a problem with a string that does not match a pattern. It shows the schema's examples or description of the field, which are easier to read.
func (t *errorTranslator) patternProblem(e *jsonschema.ValidationError, k *kind.Pattern) {
	examples, _ := t.keyword(e.SchemaURL, "examples").([]any)
	about, _ := t.keyword(e.SchemaURL, "description").(string)
	switch {
	case len(examples) > 0:
		t.add(e.InstanceLocation, nearestHint(k.Got, examples), "expected a string such as %s, got %s", muster.JoinWords(formatValues(examples), "or"), describe(k.Got))
	case about != "":
		t.add(e.InstanceLocation, "", "%s does not match the description %q", describe(k.Got), muster.Truncate(about))
	default:
		t.add(e.InstanceLocation, "", "%s", message(e))
	}
}

// message returns the message for one value. It has a generic one for rare keywords.
func message(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return fmt.Sprintf("expected %s, got %s", muster.JoinWords(typeNames(k.Want), "or"), typeName(k.Got))
	case *kind.Enum:
		return fmt.Sprintf("expected %s, got %s", muster.JoinWords(formatValues(k.Want), "or"), describe(k.Got))
	case *kind.Const:
		return fmt.Sprintf("expected %s, got %s", describe(k.Want), describe(k.Got))
	case *kind.Format:
		return fmt.Sprintf("%s is not a valid %s", describe(k.Got), k.Want)
	case *kind.Minimum:
		return fmt.Sprintf("%s is too small: write at least %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("%s is too small: write more than %s", number(k.Got), number(k.Want))
	case *kind.Maximum:
		return fmt.Sprintf("%s is too large: write at most %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("%s is too large: write less than %s", number(k.Got), number(k.Want))
	case *kind.MultipleOf:
		return fmt.Sprintf("%s is not a multiple of %s", number(k.Got), number(k.Want))
	case *kind.MinLength:
		if k.Got == 0 {
			return "it must not be empty"
		}
		return fmt.Sprintf("it has %d characters: write at least %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("it has %d characters: write at most %d", k.Got, k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("the list has %d entries: write at least %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("the list has %d entries: write at most %d", k.Got, k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("it has %d fields: write at least %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("it has %d fields: write at most %d", k.Got, k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("the entries %d and %d are equal: keep one of them", k.Duplicates[0], k.Duplicates[1])
	case *kind.Pattern:
		return fmt.Sprintf("%s does not match the pattern %s", describe(k.Got), k.Want)
	}
	return "it does not match " + strings.Join(e.ErrorKind.KeywordPath(), "/") + " of the kind's schema"
}

// unknownField adds a problem with a field that the schema does not have.
func (t *errorTranslator) unknownField(at []string) {
	name := at[len(at)-1]
	properties, _ := t.schema(at[:len(at)-1])["properties"].(map[string]any)
	known := slices.Sorted(maps.Keys(properties))
	hint := muster.DidYouMean(name, known)
	if hint == "" && len(known) > 0 && len(known) <= 12 {
		hint = "known are " + strings.Join(known, ", ")
	}
	t.add(at, hint, "unknown field")
}

// schema returns the subschema for a path, if it follows from properties and items alone.
func (t *errorTranslator) schema(at []string) map[string]any {
	v, _ := decode(t.kind.Input) // it was compiled
	s, _ := v.(map[string]any)
	for _, step := range at {
		properties, _ := s["properties"].(map[string]any)
		next, ok := properties[step].(map[string]any)
		if !ok {
			next, _ = s["items"].(map[string]any)
		}
		s = next
	}
	return s
}

// alternatives adds problems with a value that matches none of several schemas.
func (t *errorTranslator) alternatives(e *jsonschema.ValidationError) {
	var lacks []string // if the only problem of each alternative is missing fields
	for _, cause := range e.Causes {
		r, ok := cause.ErrorKind.(*kind.Required)
		if !ok || len(cause.InstanceLocation) != len(e.InstanceLocation) {
			lacks = nil
			break
		}
		lacks = append(lacks, strings.Join(r.Missing, " and "))
	}
	if len(lacks) > 0 {
		t.add(e.InstanceLocation, "", "write %s", muster.JoinWords(lacks, "or"))
		return
	}
	var wants []string // if the value has none of the allowed types
	for _, cause := range e.Causes {
		k, ok := cause.ErrorKind.(*kind.Type)
		if !ok || len(cause.InstanceLocation) != len(e.InstanceLocation) {
			continue
		}
		wants = append(wants, typeNames(k.Want)...)
	}
	if len(wants) > 0 && len(wants) >= len(e.Causes) {
		t.add(e.InstanceLocation, "", "expected %s, got %s", muster.JoinWords(wants, "or"), describe(t.value(e.InstanceLocation)))
		return
	}
	// The alternative with the deepest error is probably the intended one.
	best := slices.MaxFunc(e.Causes, func(a, b *jsonschema.ValidationError) int { return depth(a) - depth(b) })
	t.translate(best)
}

func depth(e *jsonschema.ValidationError) int {
	d := len(e.InstanceLocation)
	if _, isType := e.ErrorKind.(*kind.Type); !isType {
		d++
	}
	for _, cause := range e.Causes {
		d = max(d, depth(cause))
	}
	return d
}

// conflictMessage returns the message for a value that matches more than one alternative.
func (t *errorTranslator) conflictMessage(url string, taken []int) string {
	list, _ := t.keyword(url, "oneOf").([]any)
	var names []string
	for _, i := range taken {
		if i < len(list) {
			names = append(names, texts(child(list[i], "required"))...)
		}
	}
	if len(names) > 1 {
		return muster.JoinWords(names, "and") + " exclude each other: keep one of them"
	}
	return "it matches more than one alternative: remove a field"
}

// notMessage returns the message for a forbidden value.
func (t *errorTranslator) notMessage(url string) string {
	if names := texts(child(t.keyword(url, "not"), "required")); len(names) > 1 {
		return muster.JoinWords(names, "and") + " exclude each other: keep one of them"
	} else if len(names) == 1 {
		return names[0] + " is not allowed here: remove it"
	}
	return "it is not allowed here"
}

// keyword returns a keyword of a subschema by its URL, such as muster:input#/allOf/0.
func (t *errorTranslator) keyword(url, keyword string) any {
	v, _ := decode(t.kind.Input) // it was compiled
	_, pointer, _ := strings.Cut(url, "#")
	return child(descendant(v, pointer), keyword)
}

// texts returns the strings of a list.
func texts(list any) []string {
	var all []string
	for v := range members(list) {
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// nearestHint returns a hint with the probably intended value.
func nearestHint(v any, want []any) string {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return muster.DidYouMean(s, texts(want))
}

// typeTexts has the types of JSON Schema in words.
var typeTexts = map[string]string{
	"integer": "a whole number", "number": "a number", "string": "a string", "boolean": "true or false", "array": "a list", "object": "an object",
}

func typeName(name string) string { return cmp.Or(typeTexts[name], name) }

func typeNames(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, typeName(name))
	}
	return out
}

func formatValues(values []any) []string {
	var out []string
	for _, v := range values {
		if s, ok := v.(string); ok && s != "" {
			out = append(out, s)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			continue // never happens: it was JSON
		}
		out = append(out, string(b))
	}
	return out
}

// number formats an exact number for messages.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64() // for display only
	return strconv.FormatFloat(f, 'g', -1, 64)
}
