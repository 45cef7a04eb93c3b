package jsonschema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	original "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster/internal/jsonschema"
)

const schemaURL = "muster:input"

// originalErrors and copyErrors return the errors of a validation: a line for each error of the tree, in no particular order, because objects have none.
func originalErrors(err error) []string {
	var lines []string
	var walk func(e *original.ValidationError)
	walk = func(e *original.ValidationError) {
		lines = append(lines, fmt.Sprintf("%s %q %T%v %d", e.SchemaURL, e.InstanceLocation, e.ErrorKind, e.ErrorKind.KeywordPath(), len(e.Causes)))
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	if err != nil {
		walk(err.(*original.ValidationError))
	}
	slices.Sort(lines)
	return lines
}

func copyErrors(err error) []string {
	var lines []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		lines = append(lines, fmt.Sprintf("%s %q %T%v %d", e.SchemaURL, e.InstanceLocation, e.ErrorKind, e.ErrorKind.KeywordPath(), len(e.Causes)))
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	if err != nil {
		walk(err.(*jsonschema.ValidationError))
	}
	slices.Sort(lines)
	return lines
}

// compare compiles a schema with both, and validates values.
func compare(t interface{ Fatalf(string, ...any) }, schema string, values ...string) {
	parse := func(text string) any {
		v, err := original.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	c := original.NewCompiler()
	c.AssertFormat()
	c.UseLoader(original.SchemeURLLoader{})
	err := c.AddResource(schemaURL, parse(schema))
	var want *original.Schema
	if err == nil {
		want, err = c.Compile(schemaURL)
	}
	c2 := jsonschema.NewCompiler()
	c2.AssertFormat()
	c2.UseLoader(noLoader{})
	err2 := c2.AddResource(schemaURL, parse(schema))
	var got *jsonschema.Schema
	if err2 == nil {
		got, err2 = c2.Compile(schemaURL)
	}
	if (err == nil) != (err2 == nil) {
		t.Fatalf("%s: %v, want %v", schema, err2, err)
	}
	if err != nil {
		if bad, ok := err.(*original.SchemaValidationError); ok {
			bad2, ok := err2.(*jsonschema.SchemaValidationError)
			if !ok || !slices.Equal(copyErrors(bad2.Err), originalErrors(bad.Err)) {
				t.Fatalf("%s: %v, want %v", schema, err2, err)
			}
		}
		return
	}
	for _, value := range values {
		v := parse(value)
		if g, w := copyErrors(got.Validate(v)), originalErrors(want.Validate(v)); !slices.Equal(g, w) {
			t.Fatalf("%s\nof %s:\n%s\nwant\n%s", schema, value, strings.Join(g, "\n"), strings.Join(w, "\n"))
		}
	}
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) { return nil, fmt.Errorf("no %s", url) }

// drafts are values of $schema: the drafts, none, and some others.
var drafts = []string{
	"", "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#",
	"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/meta/core",
	"https://example.org/own", "muster:input", "%zz",
}

// scalars are values for fields and for keywords.
func scalars() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.SampledFrom([]any{
			nil, true, false, "", "a", "abc", "a@b.org", "10.0.0.1", "::1", "2026-11-28", "2026-11-28T10:00:00Z", "10:00:00Z", "P1DT2H", "a.b", "-", "/x~1y", "1/x",
			"https://a.b/c?d#e", "{x}", "1.2.3-rc.1+b", "5b1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8", "[", "^a+$",
		}),
		rapid.Custom(func(t *rapid.T) any {
			return json.Number(rapid.SampledFrom([]string{"0", "1", "2", "3", "1.5", "-1", "1.0", "1e2", "0.25"}).Draw(t, "number"))
		}),
	)
}

// values draws a value of few fields.
func values(depth int) *rapid.Generator[any] {
	if depth == 0 {
		return scalars()
	}
	return rapid.OneOf(
		scalars(),
		rapid.Map(rapid.SliceOfN(values(depth-1), 0, 3), func(l []any) any { return append([]any{}, l...) }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), values(depth-1), 0, 3), func(m map[string]any) any { return m }),
	)
}

// schemas draws a schema, which is sometimes invalid.
func schemas(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 9).Draw(t, "boolean") == 0 {
			return rapid.Bool().Draw(t, "value")
		}
		s := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "keywords") {
			small := func() any { return json.Number(rapid.SampledFrom([]string{"0", "1", "2", "3"}).Draw(t, "small")) }
			name := func() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name") }
			names := func() any {
				return rapid.SampledFrom([]any{[]any{"a"}, []any{"a", "b"}, []any{"b", "c"}, []any{}, []any{json.Number("1")}}).Draw(t, "names")
			}
			sub := func() any {
				if depth == 0 {
					return rapid.Bool().Draw(t, "leaf")
				}
				return schemas(depth-1).Draw(t, "schema")
			}
			list := func() any { return []any{sub(), sub()} }
			keyword := rapid.SampledFrom([]string{
				"type", "types", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format",
				"minItems", "maxItems", "uniqueItems", "items", "itemsList", "additionalItems", "prefixItems", "contains", "minContains", "maxContains", "unevaluatedItems",
				"minProperties", "maxProperties", "required", "properties", "patternProperties", "additionalProperties", "propertyNames", "dependencies", "dependentSchemas",
				"dependentRequired", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref", "$defs", "$anchor", "$dynamicRef", "$id", "wrong",
			}).Draw(t, "keyword")
			switch keyword {
			case "type":
				s["type"] = rapid.SampledFrom([]any{"object", "array", "string", "number", "integer", "boolean", "null", "wrong"}).Draw(t, "type")
			case "types":
				s["type"] = []any{"object", rapid.SampledFrom([]any{"array", "string", "integer"}).Draw(t, "type")}
			case "enum":
				s["enum"] = []any{values(1).Draw(t, "enum"), values(1).Draw(t, "enum")}
			case "const":
				s["const"] = values(1).Draw(t, "const")
			case "minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties":
				s[keyword] = small()
			case "exclusiveMinimum", "exclusiveMaximum":
				s[keyword] = rapid.SampledFrom([]any{true, json.Number("1")}).Draw(t, "bound")
			case "uniqueItems":
				s[keyword] = true
			case "pattern":
				s[keyword] = rapid.SampledFrom([]any{"^a", "b$", "["}).Draw(t, "pattern")
			case "format":
				s[keyword] = rapid.SampledFrom([]any{
					"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email", "date", "time", "date-time", "uri", "iri",
					"uri-reference", "iri-reference", "uri-template", "semver", "regex", "unknown",
				}).Draw(t, "format")
			case "items", "additionalItems", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties", "not", "if", "then", "else":
				s[keyword] = sub()
			case "itemsList":
				s["items"] = list()
			case "prefixItems", "allOf", "anyOf", "oneOf":
				s[keyword] = list()
			case "required":
				s[keyword] = names()
			case "properties", "dependentSchemas", "$defs":
				s[keyword] = map[string]any{name(): sub(), name(): sub()}
			case "patternProperties":
				s[keyword] = map[string]any{"^[ab]$": sub()}
			case "dependencies":
				s[keyword] = map[string]any{"a": names(), "b": sub()}
			case "dependentRequired":
				s[keyword] = map[string]any{name(): names()}
			case "$ref":
				s[keyword] = rapid.SampledFrom([]any{"#", "#/$defs/a", "#/properties/a", "#x", "https://example.org/own", "#/nowhere"}).Draw(t, "ref")
			case "$anchor":
				s[keyword] = "x"
			case "$dynamicRef":
				s[keyword] = rapid.SampledFrom([]any{"#/$defs/a", "#x"}).Draw(t, "ref")
			case "$id":
				s[keyword] = rapid.SampledFrom([]any{"urn:a", "urn:b", "x", "%zz"}).Draw(t, "id")
			case "wrong":
				s[name()] = values(1).Draw(t, "wrong")
			}
		}
		return s
	})
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(v); err != nil {
		panic(err) // never: it has JSON values only
	}
	return strings.TrimSpace(b.String())
}

// Schemas of all drafts are accepted, and values are valid, as with the library that was copied; and errors are at the same places.
func TestLikeOriginal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schemas(3).Draw(t, "schema")
		if top, ok := s.(map[string]any); ok {
			if draft := rapid.SampledFrom(drafts).Draw(t, "draft"); draft != "" {
				top["$schema"] = draft
			}
		}
		var list []string
		for range 8 {
			list = append(list, text(values(3).Draw(t, "value")))
		}
		compare(t, text(s), list...)
	})
}

// The formats accept the strings that they accept in the original.
func TestFormats(t *testing.T) {
	texts := []string{
		"", "/", "/a/b~0~1", "/a~2", "0#", "1/a", "10", "01", "-1", "a", "P1Y2M3DT4H5M6S", "P1W", "P", "PT", "PT1D", "1W", "P1YT", "10.0.0.1", "10.0.0", "256.0.0.1", "::1", "1::g", "::1%eth0",
		"a.example", "-a.example", strings.Repeat("a", 64) + ".example", "a b", "a@b.example", "@b", "a@", `"a b"@c.example`, "a..b@c.example", "a@[127.0.0.1]", "a@[IPv6:::1]", "a@[IPv6:x]", ".a@b",
		"2026-11-28", "2026-02-29", "2026-1-1", "10:00:00Z", "10:00:00+01:00", "10:00:60Z", "23:59:60Z", "10:00:00.5z", "24:00:00Z", "10:00:00", "10:00:00.Z", "10:00:00+25:00",
		"2026-11-28T10:00:00Z", "2026-11-28t10:00:00z", "2026-11-28 10:00:00Z", "https://a.example/b?c#d", "https://[::1]/", "https://[::1", "a/b", "//a", `a\\b`, "{a}/b", "{a/b", "a}b",
		"1.2.3", "1.2", "01.2.3", "1.2.3-rc.1", "1.2.3-01", "1.2.3+a.b", "1.2.3-", "1.2.3+", "5b1a2b3c-4d5e-6f70-8192-a3b4c5d6e7f8", "5b1a2b3c4d5e6f708192a3b4c5d6e7f8", "^a+$", "[",
		"2026-11-28T10:00:00Z/2026-11-28T11:00:00Z", "2026-11-28T10:00:00Z/PT1H", "PT1H/2026-11-28T11:00:00Z", "PT1H/PT1H", "a/b/c",
	}
	for _, format := range []string{
		"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email", "date", "time", "date-time", "uri", "iri", "uri-reference",
		"iri-reference", "uri-template", "semver", "regex",
	} {
		for _, s := range texts {
			compare(t, text(map[string]any{"format": format}), text(s))
		}
	}
}

// The metaschemas of a draft are compiled when they are needed, also if several goroutines need them at once.
func TestCompileInGoroutines(t *testing.T) {
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			c := jsonschema.NewCompiler()
			c.UseLoader(noLoader{})
			draft := drafts[1+i%5]
			if err := c.AddResource(schemaURL, map[string]any{"$schema": draft, "type": "object"}); err != nil {
				t.Error(err)
				return
			}
			s, err := c.Compile(schemaURL)
			if err != nil {
				t.Error(err)
			} else if s.Validate("text") == nil {
				t.Errorf("%s: a string is an object", draft)
			}
		})
	}
	all.Wait()
}
