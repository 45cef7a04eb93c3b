package kind

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/muster-dev/muster"
)

// dialect is the supported version of JSON Schema.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// inputSchema is a schema of inputs. It may be used concurrently.
type inputSchema struct {
	root     map[string]any // without references: see expander
	compiled *jsonschema.Resolved
	patterns map[string]*regexp.Regexp // of patternProperties
}

// newInputSchema checks and compiles a schema, whose references must be acyclic: see schemaSize.
func newInputSchema(top map[string]any) (*inputSchema, error) {
	if version, ok := top["$schema"]; ok && version != dialect {
		return nil, fmt.Errorf("$schema must be %s", dialect)
	}
	e := expander{top: top, patterns: map[string]*regexp.Regexp{}}
	root, err := e.schema(top, "")
	if err != nil {
		return nil, err
	}
	compiled, err := compileParts(root)
	if err != nil {
		return nil, err
	}
	s := &inputSchema{compiled: compiled, patterns: e.patterns}
	s.root, _ = root.(map[string]any)
	return s, nil
}

// allows reports whether a decoded input matches the schema.
func (s *inputSchema) allows(input any) bool { return s.compiled.Validate(plain(input)) == nil }

// compileParts compiles an expanded schema.
func compileParts(schema any) (*jsonschema.Resolved, error) {
	b, err := json.Marshal(forLibrary(schema))
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

// forLibrary returns what the library validates of an expanded schema: it does not check formats, and rejects annotations of unexpected
// types.
func forLibrary(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	out := make(map[string]any, len(s))
	var all []any
	for name, v := range s {
		switch keywords[name] {
		case oneSchema:
			out[name] = forLibrary(v)
		case schemaList:
			var parts []any
			for part := range members(v) {
				parts = append(parts, forLibrary(part))
			}
			out[name] = parts
		case schemaMap:
			parts := map[string]any{}
			schemas, _ := v.(map[string]any)
			for key, part := range schemas {
				parts[key] = forLibrary(part)
			}
			out[name] = parts
		case annotation:
			if f, ok := v.(string); ok && name == "format" && formats[f] != "" {
				all = append(all, map[string]any{"pattern": formats[f]})
			}
		default:
			out[name] = v
		}
	}
	if len(all) > 0 {
		list, _ := out["allOf"].([]any)
		out["allOf"] = append(list, all...)
	}
	return out
}

// plain replaces the spelling of numbers by their values, which the library compares.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64() // its range was checked
		return f
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = plain(part)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, part := range v {
			out[name] = plain(part)
		}
		return out
	default:
		return v
	}
}

// keyword is the kind of value that a keyword of JSON Schema has.
type keyword int

const (
	annotation keyword = iota // anything
	oneSchema
	schemaList
	schemaMap
	aType
	anyValue
	anyList
	textList
	textListMap
	aNumber
	aPositive
	aCount
	aPattern
	aBoolean
)

// keywords has the keywords of JSON Schema 2020-12 that a value is validated against: https://json-schema.org/draft/2020-12.
var keywords = map[string]keyword{
	"properties": schemaMap, "patternProperties": schemaMap, "dependentSchemas": schemaMap,
	"allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList, "prefixItems": schemaList,
	"items": oneSchema, "additionalProperties": oneSchema, "unevaluatedProperties": oneSchema, "unevaluatedItems": oneSchema, "contains": oneSchema,
	"propertyNames": oneSchema, "not": oneSchema, "if": oneSchema, "then": oneSchema, "else": oneSchema,
	"type": aType, "const": anyValue, "enum": anyList, "required": textList, "dependentRequired": textListMap,
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber, "multipleOf": aPositive,
	"minLength": aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount, "minProperties": aCount, "maxProperties": aCount,
	"minContains": aCount, "maxContains": aCount,
	"pattern": aPattern, "uniqueItems": aBoolean,
}

// expander checks a schema and replaces each reference by its target, as a part of allOf.
type expander struct {
	top      map[string]any
	patterns map[string]*regexp.Regexp // of patternProperties
}

// schema returns the expanded schema at a JSON pointer.
func (e *expander) schema(v any, at string) (any, error) {
	if _, ok := v.(bool); ok {
		return v, nil
	}
	s, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("at %q: expected a schema, got %s", at, describe(v))
	}
	out := make(map[string]any, len(s))
	for _, name := range slices.Sorted(maps.Keys(s)) {
		part, err := e.keyword(name, s[name], at+"/"+pointerToken(name))
		if err != nil {
			return nil, err
		}
		if part != nil || keywords[name] == anyValue {
			out[name] = part
		}
	}
	if to, ok := s["$ref"].(string); ok {
		target, err := e.reference(to, at)
		if err != nil {
			return nil, err
		}
		list, _ := out["allOf"].([]any)
		out["allOf"] = append([]any{target}, list...)
	}
	return out, nil
}

// reference returns the expanded target of a reference.
func (e *expander) reference(to, at string) (any, error) {
	pointer := strings.TrimPrefix(to, "#/")
	target := descendant(e.top, pointer)
	if target == nil {
		return nil, fmt.Errorf("at %q: $ref %s refers to nothing", at, muster.Truncate(to))
	}
	return e.schema(target, "/"+pointer)
}

// keyword returns the expanded value of a keyword, nil if it is left out.
func (e *expander) keyword(name string, v any, at string) (any, error) {
	switch keywords[name] {
	case oneSchema:
		return e.schema(v, at)
	case schemaList:
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return nil, fmt.Errorf("at %q: expected a list of schemas, got %s", at, describe(v))
		}
		out := make([]any, len(list))
		for i, part := range list {
			var err error
			if out[i], err = e.schema(part, at+"/"+strconv.Itoa(i)); err != nil {
				return nil, err
			}
		}
		return out, nil
	case schemaMap:
		return e.schemas(v, at)
	case annotation, aType, anyValue, anyList, textList, textListMap, aNumber, aPositive, aCount, aPattern, aBoolean:
	}
	switch name {
	case "$ref": // see schema
		return nil, nil
	case "$defs", "definitions":
		_, err := e.schemas(v, at)
		return nil, err
	case "$id", "$anchor":
		if at != "/$id" {
			return nil, fmt.Errorf("at %q: %s is not supported: use $ref with #/$defs/…", at, name)
		}
		return nil, nil
	}
	if want := wrongValue(keywords[name], v); want != "" {
		return nil, fmt.Errorf("at %q: expected %s, got %s", at, want, describe(v))
	}
	return v, nil
}

// schemas expands the values of an object.
func (e *expander) schemas(v any, at string) (any, error) {
	parts, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("at %q: expected an object of schemas, got %s", at, describe(v))
	}
	out := make(map[string]any, len(parts))
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if strings.HasSuffix(at, "/patternProperties") {
			pattern, err := regexp.Compile(name)
			if err != nil {
				return nil, fmt.Errorf("at %q: invalid pattern %q: %w", at, muster.Truncate(name), err)
			}
			e.patterns[name] = pattern
		}
		var err error
		if out[name], err = e.schema(parts[name], at+"/"+pointerToken(name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// pointerToken escapes a name for a JSON pointer (RFC 6901).
func pointerToken(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// wrongValue returns what a keyword needs, "" if its value is right.
func wrongValue(k keyword, v any) string {
	n, isNumber := v.(json.Number)
	f, err := n.Float64()
	isNumber = isNumber && err == nil
	switch k {
	case aType:
		names := []any{v}
		if list, ok := v.([]any); ok {
			names = list
		}
		if len(texts(names)) != len(names) || len(names) == 0 || slices.ContainsFunc(texts(names), func(t string) bool { return typeTexts[t] == "" }) {
			return "the name of a type (" + muster.JoinWords(slices.Sorted(maps.Keys(typeTexts)), "or") + ")"
		}
	case anyList:
		if _, ok := v.([]any); !ok {
			return "a list"
		}
	case textList:
		if list, ok := v.([]any); !ok || len(texts(list)) != len(list) {
			return "a list of names"
		}
	case textListMap:
		lists, ok := v.(map[string]any)
		for _, list := range lists {
			ok = ok && wrongValue(textList, list) == ""
		}
		if !ok {
			return "an object of lists of names"
		}
	case aNumber:
		if !isNumber {
			return "a number"
		}
	case aPositive:
		if !isNumber || f <= 0 {
			return "a number above 0"
		}
	case aCount:
		if !isNumber || f < 0 || f > 1<<31-1 || f != float64(int(f)) {
			return "a whole number of 0 or more"
		}
	case aPattern:
		s, ok := v.(string)
		if _, err := regexp.Compile(s); err != nil || !ok {
			return "a regular expression"
		}
	case aBoolean:
		if _, ok := v.(bool); !ok {
			return "true or false"
		}
	case annotation, oneSchema, schemaList, schemaMap, anyValue:
	}
	return ""
}

// formats has patterns for the usual formats. Others are annotations, as in JSON Schema 2020-12.
var formats = map[string]string{
	"uri":       `^[A-Za-z][A-Za-z0-9+.-]*:[^\s<>"{}|\\^` + "`" + `]+$`,
	"email":     `^[^\s@]+@[^\s@]+$`,
	"uuid":      `^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`,
	"date":      `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$`,
	"time":      `^` + timePattern + `$`,
	"date-time": `^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]` + timePattern + `$`,
	"hostname":  `^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$`,
	"ipv4":      `^(` + octet + `\.){3}` + octet + `$`,
	"ipv6":      `^[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*$`,
}

const (
	timePattern = `([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)`
	octet       = `(25[0-5]|2[0-4]\d|1?\d?\d)`
)
