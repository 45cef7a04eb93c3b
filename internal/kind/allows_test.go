package kind

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	peer "github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// peculiar has the keywords that embedded kinds do not use.
const peculiar = `{"type": "object", "properties": {
	"list": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": ["integer", "null"]}, "minItems": 1, "maxItems": 3, "uniqueItems": true, "contains": {"const": 2}},
	"map": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": false, "propertyNames": {"maxLength": 2}, "minProperties": 1},
	"either": {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "number", "exclusiveMaximum": 4}, {"type": "object", "required": ["a"]}]},
	"not": {"not": {"enum": ["a", 1]}},
	"named": {"$ref": "#/$defs/named"}, "mail": {"format": "email"}, "at": {"format": "date"}
}, "$defs": {"named": {"type": "string", "minLength": 2}},
	"if": {"properties": {"not": {"const": "b"}}, "required": ["not"]}, "then": {"properties": {"extra": true}}, "else": {"required": ["list"]},
	"dependentRequired": {"map": ["either"]}, "dependentSchemas": {"mail": {"properties": {"more": {"type": "boolean"}}}},
	"allOf": [{"properties": {"from": {"maximum": 3}}}]}`

// TestAnotherLibraryAgrees compares which inputs are valid with another implementation of JSON Schema.
func TestAnotherLibraryAgrees(t *testing.T) {
	schemas := map[string]json.RawMessage{"peculiar": json.RawMessage(peculiar)}
	for _, k := range Embedded() {
		if len(k.Input) > 0 {
			schemas[k.Name] = k.Input
		}
	}
	for name, raw := range schemas {
		t.Run(name, func(t *testing.T) {
			k := &Kind{Name: name, Input: raw}
			var err error
			if k.schema, k.schemaParts, err = compile(raw); err != nil {
				t.Fatal(err)
			}
			decoded, err := decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			top := decoded.(map[string]any)
			if top["additionalProperties"] == nil && top["unevaluatedProperties"] == nil && top["properties"] != nil {
				top["unevaluatedProperties"] = false
			}
			c := peer.NewCompiler()
			c.DefaultDraft(peer.Draft2020)
			c.AssertFormat()
			if err := c.AddResource("muster:input", top); err != nil {
				t.Fatal(err)
			}
			want, err := c.Compile("muster:input")
			if err != nil {
				t.Fatal(err)
			}
			valid := 0
			rapid.Check(t, func(t *rapid.T) {
				v := drawInput(t, k.schema.root, 3)
				b, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				input, err := decode(b)
				if err != nil {
					t.Fatal(err)
				}
				peerErr := want.Validate(input)
				wrong := k.CheckInput(b, true)
				if (peerErr == nil) != (len(wrong) == 0) {
					t.Fatalf("%s\nthe other library: %v\nproblems: %v", b, peerErr, wrong)
				}
				if peerErr == nil {
					valid++
				}
				for _, w := range wrong {
					if w.Message == "it does not match the kind's schema" {
						t.Fatalf("%s is not explained: %v", b, peerErr)
					}
				}
			})
			t.Logf("%d inputs were valid", valid)
		})
	}
}

// drawInput draws a value that a schema probably allows, or almost allows.
func drawInput(t *rapid.T, schema any, depth int) any {
	s, _ := schema.(map[string]any)
	if rapid.IntRange(0, 19).Draw(t, "odd") == 0 || depth == 0 {
		return rapid.SampledFrom([]any{nil, true, 0, 1, 2, -1, 2.5, "", "a", "b", "2", []any{}, []any{1, 1}, map[string]any{}, map[string]any{"a": 1}}).Draw(t, "any")
	}
	for _, keyword := range []string{"enum", "examples"} {
		if list, _ := s[keyword].([]any); len(list) > 0 {
			return rapid.SampledFrom(list).Draw(t, keyword)
		}
	}
	for _, keyword := range []string{"const", "default"} {
		if v, ok := s[keyword]; ok && rapid.Bool().Draw(t, keyword) {
			return v
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
		list, _ := s[keyword].([]any)
		if len(list) == 0 || properties != nil {
			continue
		}
		return drawInput(t, rapid.SampledFrom(list).Draw(t, keyword), depth-1)
	}
	types := typesOf(s["type"])
	if properties != nil {
		types = []string{"object"}
	}
	if len(types) == 0 {
		types = []string{"string", "integer", "object"}
	}
	switch rapid.SampledFrom(types).Draw(t, "type") {
	case "object":
		out := map[string]any{}
		names := append(slices.Sorted(maps.Keys(properties)), "a", "extra", "more")
		names = append(names, texts(s["required"])...)
		if list, _ := s["oneOf"].([]any); len(list) > 0 {
			names = append(names, texts(child(rapid.SampledFrom(list).Draw(t, "alternative"), "required"))...)
		}
		for _, name := range texts(s["required"]) {
			out[name] = drawInput(t, properties[name], depth-1)
		}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			out[name] = drawInput(t, properties[name], depth-1)
		}
		return out
	case "array":
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			out = append(out, drawInput(t, s["items"], depth-1))
		}
		return out
	case "integer":
		return rapid.SampledFrom([]any{0, 1, 2, 3, 10, 100}).Draw(t, "integer")
	case "number":
		return rapid.SampledFrom([]any{0, 0.1, 0.5, 1, 2.5, 100}).Draw(t, "number")
	case "boolean":
		return rapid.Bool().Draw(t, "boolean")
	case "null":
		return nil
	default:
		return rapid.SampledFrom([]any{"", "a", "b", "name", "a.csv", "https://example.org/a", "a@b.c", "2026-01-31"}).Draw(t, "string")
	}
}
