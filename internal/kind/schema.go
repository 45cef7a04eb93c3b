package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/muster-dev/muster"
)

// schemaURL is what a schema has in place of an address.
const schemaURL = "muster:input"

// noRemote refuses the schemas that a schema refers to and does not hold.
type noRemote struct{}

// Load implements jsonschema.URLLoader.
func (noRemote) Load(url string) (any, error) {
	return nil, fmt.Errorf("$ref %s leads out of the definition: refer to what stands in it, as #/$defs/…", truncate(url))
}

// compile reads a schema of an input and counts its parts. Fields that it does not name are refused, unless it says additionalProperties.
func compile(raw json.RawMessage) (schema *jsonschema.Schema, parts int, err error) {
	v, err := decode(raw)
	if err != nil {
		return nil, 0, err
	}
	top, ok := v.(map[string]any)
	if !ok || top["type"] != "object" {
		return nil, 0, errors.New("write type: object, and the fields under properties")
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
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noRemote{})
	if err := c.AddResource(schemaURL, top); err != nil {
		return nil, 0, err
	}
	if schema, err = c.Compile(schemaURL); err != nil {
		return nil, 0, errors.New(compileMessage(err))
	}
	return schema, parts, nil
}

// compileMessage is an error of the schema library in one line.
func compileMessage(err error) string {
	if bad, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if inner, ok := errors.AsType[*jsonschema.ValidationError](bad.Err); ok {
			for len(inner.Causes) > 0 {
				inner = inner.Causes[0]
			}
			return fmt.Sprintf("at %q: %s", "/"+strings.Join(inner.InstanceLocation, "/"), message(inner))
		}
	}
	if bad, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return bad.Err.Error()
	}
	return strings.ReplaceAll(err.Error(), schemaURL, "")
}

// checkNumbers refuses numbers that are out of the range of all numbers: their exact value, with which schemas reckon, may take the
// memory of the machine.
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

// Error tells where it stands.
func (e *rangeError) Error() string {
	return fmt.Sprintf("%s: the number %s is out of range", strings.TrimPrefix(e.at, "."), truncate(e.number))
}

// Fields lists the fields of the input by name.
func (k *Kind) Fields() []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(k.Input, &s) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// CheckInput tells what is wrong with an input, with the paths of its fields, such as input.epochs. Until references are
// resolved, nothing is told of a value with a text that has one, ${…}.
func (k *Kind) CheckInput(input json.RawMessage, resolved bool) []muster.FieldError {
	if k.schema == nil {
		if len(input) == 0 || isEmpty(input) {
			return nil
		}
		return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("the kind %s takes none: leave input out", k.Name)}}
	}
	v, wrong := decodeInput(input)
	if wrong != nil {
		return []muster.FieldError{*wrong}
	}
	if k.schemaParts > 0 && k.schemaParts*countValues(v) > maxWork {
		return []muster.FieldError{{Path: "input", Message: fmt.Sprintf("it has more values than can be held to the schema of kind %s: bring them along as a file", k.Name)}}
	}
	err := k.schema.Validate(v)
	bad, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return nil
	}
	t := errorTranslator{kind: k, input: v, resolved: resolved}
	t.translate(bad)
	return t.problems()
}

// decodeInput reads an input; none is as good as an empty one.
func decodeInput(input json.RawMessage) (map[string]any, *muster.FieldError) {
	if len(input) == 0 {
		return map[string]any{}, nil
	}
	v, err := decode(input)
	if err != nil {
		return nil, &muster.FieldError{Path: "input", Message: "it is not JSON"}
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, &muster.FieldError{Path: "input", Message: describe(v) + " cannot stand here: write an object of fields and values"}
	}
	if bad, ok := errors.AsType[*rangeError](checkNumbers(v, "input")); ok {
		return nil, &muster.FieldError{Path: bad.at, Message: fmt.Sprintf("the number %s is out of range", truncate(bad.number))}
	}
	return o, nil
}

func isEmpty(input json.RawMessage) bool {
	v, err := decode(input)
	o, ok := v.(map[string]any)
	return err == nil && (v == nil || ok && len(o) == 0)
}

// ModelKey says which tasks of the kind can be served by one loaded model: those with the same key. It is "" if the kind names no fields.
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

// RuntimeFor is the runtime for an input, "" for none.
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

// equalJSON compares values of JSON.
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
		return strconv.Quote(truncate(v))
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

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
