package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// field is one field of an input, as it is shown.
type field struct {
	name     string // with those around it: peft.r
	is       string // what may stand there, in words
	required bool
	initial  string // the default as JSON, "" for none
	about    string
}

// most bounds what is shown of a schema, which may be anybody's.
const (
	mostDepth  = 4
	mostWords  = 12 // of an enumeration
	mostFields = 500
)

// schema is what is read of a JSON Schema. A field that is of another form than usual is left out.
type schema struct {
	Type        words           `json:"type"`
	Description text            `json:"description"`
	Default     json.RawMessage `json:"default"`
	Enum        []any           `json:"enum"`
	Examples    values          `json:"examples"`
	Const       json.RawMessage `json:"const"`
	Min         number          `json:"minimum"`
	Above       number          `json:"exclusiveMinimum"`
	Max         number          `json:"maximum"`
	Below       number          `json:"exclusiveMaximum"`
	Format      text            `json:"format"`
	Items       *schema         `json:"items"`
	OneOf       []schema        `json:"oneOf"`
	AnyOf       []schema        `json:"anyOf"`
	Ref         text            `json:"$ref"`
	Defs        members         `json:"$defs"`
	Required    []string        `json:"required"`
	Properties  members         `json:"properties"`
}

// words is one text or a list of such; values, text and number are as their names say. What is neither is left empty.
type (
	words  []string
	values []any
	text   string
	number string
)

// UnmarshalJSON takes what fits.
func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*w = words{one}
	} else if json.Unmarshal(b, (*[]string)(w)) != nil {
		*w = nil
	}
	return nil
}

// UnmarshalJSON takes what fits.
func (v *values) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*[]any)(v)) != nil {
		*v = nil
	}
	return nil
}

// UnmarshalJSON takes what fits.
func (t *text) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(t)) != nil {
		*t = ""
	}
	return nil
}

// UnmarshalJSON takes what fits.
func (n *number) UnmarshalJSON(b []byte) error {
	var is json.Number
	if b[0] != '"' && json.Unmarshal(b, &is) == nil {
		*n = number(is)
	}
	return nil
}

// members are the fields of an object in their order.
type members []member

type member struct {
	name string
	schema
}

// UnmarshalJSON reads an object.
func (m *members) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		each := member{name: fmt.Sprint(name)}
		_ = json.Unmarshal(raw, &each.schema) // what cannot be shown is a field without a word
		*m = append(*m, each)
	}
	return nil
}

// fields reads the fields of an input from its schema, in their order, and what else it says of which must be given.
func fields(raw json.RawMessage) (all []field, also []string) {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return nil, nil
	}
	r := reader{defs: s.Defs}
	for _, choice := range [][]schema{s.OneOf, s.AnyOf} {
		var names []string
		for _, c := range choice {
			if len(c.Required) > 0 {
				names = append(names, strings.Join(c.Required, " and "))
			}
		}
		if len(names) > 1 {
			also = append(also, "it takes "+or(names))
		}
	}
	r.below("", &s, 0)
	return r.all, also
}

// reader gathers fields.
type reader struct {
	defs members
	all  []field
}

// at puts what a schema refers to in its place, as far as it says nothing itself.
func (r *reader) at(s *schema) *schema {
	name, ok := strings.CutPrefix(string(s.Ref), "#/$defs/")
	i := slices.IndexFunc(r.defs, func(m member) bool { return m.name == name })
	if !ok || i < 0 {
		return s
	}
	whole := r.defs[i].schema
	if s.Description != "" {
		whole.Description = s.Description
	}
	if len(s.Default) > 0 {
		whole.Default = s.Default
	}
	return &whole
}

func (r *reader) below(prefix string, s *schema, depth int) {
	for _, m := range s.Properties {
		name := prefix + m.name
		is := r.at(&m.schema)
		r.all = append(r.all, field{
			name: name, is: r.words(is, 0), required: slices.Contains(s.Required, m.name), initial: compact(is.Default), about: string(is.Description),
		})
		if depth < mostDepth && len(r.all) < mostFields {
			r.below(name+".", is, depth+1)
			if is.Items != nil {
				r.below(name+"[].", r.at(is.Items), depth+1)
			}
		}
	}
}

// words says what may stand in a field.
func (r *reader) words(s *schema, depth int) string {
	s = r.at(s)
	if depth > mostDepth {
		return ""
	}
	switch {
	case len(s.Enum) > 0:
		return or(some(s.Enum))
	case len(s.Const) > 0:
		return compact(s.Const)
	case len(s.OneOf) > 0 && len(s.Type) == 0:
		return r.either(s.OneOf, depth)
	case len(s.AnyOf) > 0 && len(s.Type) == 0:
		return r.either(s.AnyOf, depth)
	}
	var list []string
	for _, t := range s.Type {
		list = append(list, r.typed(s, t, depth))
	}
	return or(list)
}

// some writes values, no more than can be read.
func some(all []any) []string {
	var list []string
	for _, v := range all[:min(len(all), mostWords)] {
		list = append(list, value(v))
	}
	if len(all) > mostWords {
		list = append(list, "…")
	}
	return list
}

func (r *reader) either(choices []schema, depth int) string {
	var list []string
	for i := range choices {
		if w := r.words(&choices[i], depth+1); w != "" && !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return or(list)
}

// typed names a type of JSON Schema as people do.
func (r *reader) typed(s *schema, name string, depth int) string {
	switch name {
	case "integer":
		return "whole number" + s.span()
	case "number":
		return "number" + s.span()
	case "string":
		if s.Format != "" {
			return "text (" + string(s.Format) + ")"
		}
		if len(s.Examples) > 0 {
			return "text such as " + or(some(s.Examples))
		}
		return "text"
	case "boolean":
		return "true or false"
	case "array":
		is := "list"
		if s.Items != nil {
			if of := r.words(s.Items, depth+1); of != "" && len(r.at(s.Items).Type) <= 1 {
				is += ", each " + of
			}
		}
		return is
	}
	return name
}

// span is the range of a number.
func (s *schema) span() string {
	switch {
	case s.Min != "" && s.Max != "":
		return fmt.Sprintf(", %s to %s", s.Min, s.Max)
	case s.Above != "" && s.Max != "":
		return fmt.Sprintf(", over %s to %s", s.Above, s.Max)
	case s.Min != "" && s.Below != "":
		return fmt.Sprintf(", from %s, under %s", s.Min, s.Below)
	case s.Above != "" && s.Below != "":
		return fmt.Sprintf(", over %s, under %s", s.Above, s.Below)
	case s.Min != "":
		return ", from " + string(s.Min)
	case s.Above != "":
		return ", over " + string(s.Above)
	case s.Max != "":
		return ", to " + string(s.Max)
	case s.Below != "":
		return ", under " + string(s.Below)
	}
	return ""
}

// value writes a value of JSON, a text without quotes where that can be understood.
func value(v any) string {
	if s, ok := v.(string); ok && s != "" && !strings.ContainsAny(s, " ,\"") {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "" // never: it was JSON
	}
	return string(b)
}

func compact(raw json.RawMessage) string {
	var v any
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil || v == nil {
		return ""
	}
	var b bytes.Buffer
	if s, ok := v.(string); ok {
		return value(s)
	}
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}

func or(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}
