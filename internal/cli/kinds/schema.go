package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// field is one field of an input.
type field struct {
	name         string // path, such as peft.r
	typeText     string // the type in words
	required     bool
	defaultValue string // the default as JSON, "" for none
	description  string
}

// Limits of the output for a schema, which may be any user's.
const (
	maxDepth      = 4
	maxEnumValues = 12
	maxFields     = 500
)

// schema is the displayed part of a JSON Schema, which the server has validated. It is empty for the schemas true and false.
type schema struct {
	Type        typeNames       `json:"type"`
	Description string          `json:"description"`
	Default     json.RawMessage `json:"default"`
	Enum        []any           `json:"enum"`
	Examples    []any           `json:"examples"`
	Const       json.RawMessage `json:"const"`
	Min         json.Number     `json:"minimum"`
	Above       json.Number     `json:"exclusiveMinimum"`
	Max         json.Number     `json:"maximum"`
	Below       json.Number     `json:"exclusiveMaximum"`
	Format      string          `json:"format"`
	Items       *schema         `json:"items"`
	OneOf       []schema        `json:"oneOf"`
	AnyOf       []schema        `json:"anyOf"`
	Ref         string          `json:"$ref"`
	Defs        properties      `json:"$defs"`
	Required    []string        `json:"required"`
	Properties  properties      `json:"properties"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *schema) UnmarshalJSON(b []byte) error {
	type plain schema
	if b[0] != '{' {
		return nil
	}
	return json.Unmarshal(b, (*plain)(s))
}

// typeNames is one string or a list in JSON.
type typeNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *typeNames) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = typeNames{""}
	return json.Unmarshal(b, &(*t)[0])
}

// properties are the fields of an object in their order.
type properties []property

type property struct {
	name string
	schema
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *properties) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		prop := property{name: fmt.Sprint(name)}
		if err := d.Decode(&prop.schema); err != nil {
			return err
		}
		*m = append(*m, prop)
	}
	return nil
}

// inputFields returns the fields of an input in the order of its schema, and requirements for combinations of them.
func inputFields(raw json.RawMessage) (all []field, requirements []string) {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return nil, nil
	}
	r := fieldReader{defs: s.Defs}
	for _, choice := range [][]schema{s.OneOf, s.AnyOf} {
		var names []string
		for _, c := range choice {
			if len(c.Required) > 0 {
				names = append(names, strings.Join(c.Required, " and "))
			}
		}
		if len(names) > 1 {
			requirements = append(requirements, "requires "+muster.JoinWords(names, "or"))
		}
	}
	r.addProperties("", &s, 0)
	return r.all, requirements
}

// fieldReader collects fields.
type fieldReader struct {
	defs properties
	all  []field
}

// resolve returns the schema that s refers to, with the description and default of s.
func (r *fieldReader) resolve(s *schema) *schema {
	name, ok := strings.CutPrefix(s.Ref, "#/$defs/")
	i := slices.IndexFunc(r.defs, func(m property) bool { return m.name == name })
	if !ok || i < 0 {
		return s
	}
	merged := r.defs[i].schema
	if s.Description != "" {
		merged.Description = s.Description
	}
	if len(s.Default) > 0 {
		merged.Default = s.Default
	}
	return &merged
}

func (r *fieldReader) addProperties(prefix string, s *schema, depth int) {
	for _, m := range s.Properties {
		name := prefix + m.name
		resolved := r.resolve(&m.schema)
		r.all = append(r.all, field{
			name: name, typeText: r.describe(resolved, 0), required: slices.Contains(s.Required, m.name), defaultValue: compactJSON(resolved.Default), description: resolved.Description,
		})
		if depth < maxDepth && len(r.all) < maxFields {
			r.addProperties(name+".", resolved, depth+1)
			if resolved.Items != nil {
				r.addProperties(name+"[].", r.resolve(resolved.Items), depth+1)
			}
		}
	}
}

// describe returns the type of a field in words.
func (r *fieldReader) describe(s *schema, depth int) string {
	s = r.resolve(s)
	if depth > maxDepth {
		return ""
	}
	switch {
	case len(s.Enum) > 0:
		return muster.JoinWords(formatValues(s.Enum), "or")
	case len(s.Const) > 0:
		return compactJSON(s.Const)
	case len(s.OneOf) > 0 && len(s.Type) == 0:
		return r.describeChoices(s.OneOf, depth)
	case len(s.AnyOf) > 0 && len(s.Type) == 0:
		return r.describeChoices(s.AnyOf, depth)
	}
	var list []string
	for _, t := range s.Type {
		list = append(list, r.describeType(s, t, depth))
	}
	return muster.JoinWords(list, "or")
}

// formatValues formats at most maxEnumValues values.
func formatValues(all []any) []string {
	var list []string
	for _, v := range all[:min(len(all), maxEnumValues)] {
		list = append(list, formatValue(v))
	}
	if len(all) > maxEnumValues {
		list = append(list, "…")
	}
	return list
}

func (r *fieldReader) describeChoices(choices []schema, depth int) string {
	var list []string
	for i := range choices {
		if w := r.describe(&choices[i], depth+1); w != "" && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return muster.JoinWords(list, "or")
}

// describeType returns a type of JSON Schema in words.
func (r *fieldReader) describeType(s *schema, name string, depth int) string {
	switch name {
	case "integer", "number":
		return name + s.rangeText()
	case "string":
		if s.Format != "" {
			return "string (" + s.Format + ")"
		}
		if len(s.Examples) > 0 {
			return "string such as " + muster.JoinWords(formatValues(s.Examples), "or")
		}
		return "string"
	case "boolean":
		return "true or false"
	case "array":
		desc := "list"
		if s.Items != nil {
			if elem := r.describe(s.Items, depth+1); elem != "" && len(r.resolve(s.Items).Type) <= 1 {
				desc += " of " + elem
			}
		}
		return desc
	}
	return name
}

// rangeText returns the range of a number.
func (s *schema) rangeText() string {
	var text strings.Builder
	for _, bound := range []struct {
		op    string
		value json.Number
	}{{"≥ ", s.Min}, {"> ", s.Above}, {"≤ ", s.Max}, {"< ", s.Below}} {
		if bound.value != "" {
			text.WriteString(", " + bound.op + bound.value.String())
		}
	}
	return text.String()
}

// formatValue formats a JSON value, a plain string without quotes.
func formatValue(v any) string {
	if s, ok := v.(string); ok && s != "" && !strings.ContainsAny(s, " ,\"") {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // never: it was JSON
	}
	return string(b)
}

func compactJSON(raw json.RawMessage) string {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil || v == nil {
		return ""
	}
	var b bytes.Buffer
	if s, ok := v.(string); ok {
		return formatValue(s)
	}
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}
