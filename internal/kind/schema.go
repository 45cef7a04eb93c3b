package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// compile compiles the schema of an input and counts its parts. Unknown fields are rejected unless it has additionalProperties.
func compile(raw json.RawMessage) (schema *inputSchema, parts int, err error) {
	v, err := decode(raw)
	if err != nil {
		return nil, 0, err
	}
	top, ok := v.(map[string]any)
	if !ok || top["type"] != "object" {
		return nil, 0, errors.New("it must have type: object, with the fields under properties")
	}
	if err := checkNumbers(v, ""); err != nil {
		return nil, 0, err
	}
	if parts, err = schemaSize(top); err != nil {
		return nil, 0, err
	}
	_, lists := top["properties"]
	_, additional := top["additionalProperties"]
	_, unevaluated := top["unevaluatedProperties"]
	if lists && !additional && !unevaluated {
		top["unevaluatedProperties"] = false
	}
	schema, err = newInputSchema(top)
	return schema, parts, err
}

// checkNumbers rejects numbers outside of float64's range: validation uses exact values, which could exhaust the memory.
func checkNumbers(v any, at string) error {
	switch v := v.(type) {
	case json.Number:
		if f, err := v.Float64(); err != nil || f == 0 && strings.ContainsAny(string(v), "eE") && strings.ContainsAny(string(v), "123456789") {
			return &rangeError{at, string(v)}
		}
	case []any:
		for i := range v {
			if err := checkNumbers(v[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := checkNumbers(v[name], at+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}

type rangeError struct{ at, number string }

// Error implements error.
func (e *rangeError) Error() string {
	return fmt.Sprintf("%s: the number %s is out of range", strings.TrimPrefix(e.at, "."), muster.Truncate(e.number))
}

// Fields lists the names of the input's fields.
func (k *Kind) Fields() []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(k.Input, &s) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// CheckInput returns the problems of an input, with paths such as input.epochs. Unless references are resolved, it does not check
// values with a string that contains a reference ${…}.
func (k *Kind) CheckInput(input json.RawMessage, resolved bool) []muster.FieldError {
	if k.schema == nil {
		if len(input) == 0 || isEmpty(input) {
			return nil
		}
		return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("kind %s takes no input: remove it", k.Name)}}
	}
	v, wrong := decodeInput(input)
	if wrong != nil {
		return []muster.FieldError{*wrong}
	}
	if k.schemaParts > 0 && k.schemaParts*countValues(v) > maxWork {
		return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("the input has too many values for the schema of kind %s: pass them as a file", k.Name)}}
	}
	if k.schema.allows(v) {
		return nil
	}
	return newExplainer(k.schema, v, resolved).problems()
}

// decodeInput decodes an input; an absent one is empty.
func decodeInput(input json.RawMessage) (map[string]any, *muster.FieldError) {
	if len(input) == 0 {
		return map[string]any{}, nil
	}
	v, err := decode(input)
	if err != nil {
		return nil, &muster.FieldError{Path: "input", Message: "the input is not JSON"}
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, &muster.FieldError{Path: "input", Message: "expected an object of fields and values, got " + describe(v)}
	}
	if bad, ok := errors.AsType[*rangeError](checkNumbers(v, "input")); ok {
		return nil, &muster.FieldError{Path: bad.at, Message: fmt.Sprintf("the number %s is out of range", muster.Truncate(bad.number))}
	}
	return o, nil
}

func isEmpty(input json.RawMessage) bool {
	v, err := decode(input)
	o, ok := v.(map[string]any)
	return err == nil && (v == nil || ok && len(o) == 0)
}

// ModelKey returns a key for an input: tasks of the kind with equal keys can share a loaded model. It is "" if the kind has no MergeKey.
func (k *Kind) ModelKey(input json.RawMessage) string {
	if len(k.MergeKey) == 0 {
		return ""
	}
	v, _ := decodeInput(input)
	parts := make([]any, 0, len(k.MergeKey))
	for _, name := range k.MergeKey {
		parts = append(parts, v[name])
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return "" // never: they were JSON
	}
	return k.Name + string(b)
}

// RuntimeFor returns the runtime for an input, or "".
func (k *Kind) RuntimeFor(input json.RawMessage) string {
	v, _ := decodeInput(input)
	for _, variant := range k.Variants {
		when, err := decode(variant.When)
		fields, ok := when.(map[string]any)
		if err != nil || !ok {
			continue
		}
		fits := true
		for name, want := range fields {
			fits = fits && equalJSON(v[name], want)
		}
		if fits {
			return variant.Runtime
		}
	}
	return k.Runtime
}

// equalJSON compares JSON values.
func equalJSON(a, b any) bool {
	x, xok := a.(json.Number)
	y, yok := b.(json.Number)
	if xok && yok {
		f, errF := x.Float64()
		g, errG := y.Float64()
		return errF == nil && errG == nil && math.Abs(f-g) == 0
	}
	one, err := json.Marshal(a)
	two, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(one) == string(two)
}

func describe(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(muster.Truncate(v))
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case nil:
		return "null"
	default:
		return fmt.Sprint(v)
	}
}

// maxSchemaSize is the maximum number of parts of a schema with all references expanded: the time to validate an
// input grows with it.
const maxSchemaSize = 4_000

// maxWork is the maximum number of values of an input times parts of a schema, which takes a few seconds: neither is
// trusted.
const maxWork = 1_000_000

// members yields the elements of a list or the values of an object.
func members(v any) iter.Seq[any] {
	switch v := v.(type) {
	case []any:
		return slices.Values(v)
	case map[string]any:
		return maps.Values(v)
	default:
		return func(func(any) bool) {}
	}
}

// countValues returns the number of values of an input. Long strings count more: each part of a schema that does not allow one copies it.
func countValues(v any) int {
	n := 1
	if s, ok := v.(string); ok {
		n += len(s) / 32
	}
	for part := range members(v) {
		n += countValues(part)
	}
	return n
}

// schemaSize counts the parts of a schema. It rejects one whose references expand to too many: schemas of workers are not trusted.
func schemaSize(top map[string]any) (int, error) {
	b := &schemaSizer{top: top, refSizes: map[string]int{}}
	n, err := b.size(top)
	if err == nil && n > maxSchemaSize {
		err = fmt.Errorf("it has more than %d parts with all references expanded", maxSchemaSize)
	}
	return n, err
}

type schemaSizer struct {
	top      map[string]any
	refSizes map[string]int // parts per reference; 0 while they are counted
}

// size counts parts, up to maxSchemaSize.
func (b *schemaSizer) size(v any) (n int, err error) {
	n = 1
	add := func(part any) {
		if err == nil && n <= maxSchemaSize {
			var m int
			m, err = b.size(part)
			n += m
		}
	}
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			add(part)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			to, isText := v[name].(string)
			switch {
			case isText && name == "$ref" && err == nil:
				var m int
				m, err = b.refSize(to)
				n += m
			case isText && (name == "$dynamicRef" || name == "$recursiveRef"):
				return 0, fmt.Errorf("%s is not supported: use $ref with #/$defs/…", name)
			default:
				add(v[name])
			}
		}
	}
	return n, err
}

// refSize counts the parts of a reference's target.
func (b *schemaSizer) refSize(to string) (int, error) {
	pointer, ok := strings.CutPrefix(to, "#/")
	if !ok {
		return 0, fmt.Errorf("$ref %s does not refer to a part of the definition: use a reference such as #/$defs/…", muster.Truncate(to))
	}
	if n, known := b.refSizes[pointer]; known {
		if n == 0 {
			return 0, fmt.Errorf("$ref %s refers to itself", muster.Truncate(to))
		}
		return n, nil
	}
	b.refSizes[pointer] = 0
	n, err := b.size(descendant(b.top, pointer))
	b.refSizes[pointer] = n
	return n, err
}
