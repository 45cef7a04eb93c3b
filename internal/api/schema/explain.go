package schema

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

// Explain replaces the error of a value in a body that matches none of its alternatives: by the errors of the alternative with the
// value's type, or by what the alternatives are. It returns other errors unchanged.
func Explain(registry huma.Registry, body *huma.Schema, detail *huma.ErrorDetail) []*huma.ErrorDetail {
	path, ok := strings.CutPrefix(detail.Location, "body.")
	if detail.Message != validation.MsgExpectedMatchAtLeastOneSchema || !ok || body == nil {
		return []*huma.ErrorDetail{detail}
	}
	schema := find(registry, body, path)
	if schema == nil {
		return []*huma.ErrorDetail{detail}
	}
	var names []string
	for _, s := range schema.AnyOf {
		s = resolve(registry, s)
		if !hasType(s, detail.Value) {
			names = append(names, s.Type)
			continue
		}
		if s.Type == huma.TypeNumber || s.Type == huma.TypeInteger {
			return []*huma.ErrorDetail{{Location: detail.Location, Value: detail.Value, Message: "expected " + describeRange(s)}}
		}
		var result huma.ValidateResult
		buffer := huma.NewPathBuffer(nil, 0)
		buffer.Push(detail.Location)
		huma.Validate(registry, s, buffer, huma.ModeWriteToServer, detail.Value, &result)
		var all []*huma.ErrorDetail
		for _, err := range result.Errors {
			if inner, ok := err.(*huma.ErrorDetail); ok { //nolint:errorlint // huma does not wrap them
				all = append(all, Explain(registry, body, inner)...)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return []*huma.ErrorDetail{{Location: detail.Location, Value: detail.Value, Message: "expected " + strings.Join(names, " or ")}}
}

// describeRange describes the numbers that a schema allows.
func describeRange(s *huma.Schema) string {
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%s from %.0f to %.0f", s.Type, *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		return fmt.Sprintf("%s from %.0f on", s.Type, *s.Minimum)
	default:
		return s.Type
	}
}

// hasType reports whether a decoded value has the type of a schema.
func hasType(s *huma.Schema, v any) bool {
	switch v.(type) {
	case map[string]any:
		return s.Type == huma.TypeObject
	case []any:
		return s.Type == huma.TypeArray
	case float64:
		return s.Type == huma.TypeNumber || s.Type == huma.TypeInteger
	case string:
		return s.Type == huma.TypeString
	case bool:
		return s.Type == huma.TypeBoolean
	default:
		return false
	}
}

// find returns the schema of the value at a path such as keep.list[2].name, nil if there is none.
func find(registry huma.Registry, s *huma.Schema, path string) *huma.Schema {
	for name := range strings.SplitSeq(path, ".") {
		name, indexes, _ := strings.Cut(name, "[")
		if s = property(registry, s, name); s == nil {
			return nil
		}
		for range strings.Count(indexes, "]") {
			if s = resolve(registry, s); s.Items == nil {
				return nil
			}
			s = s.Items
		}
	}
	return resolve(registry, s)
}

// property returns the schema of a property of an object, or of one of the alternatives.
func property(registry huma.Registry, s *huma.Schema, name string) *huma.Schema {
	s = resolve(registry, s)
	if p := s.Properties[name]; p != nil {
		return p
	}
	if additional, ok := s.AdditionalProperties.(*huma.Schema); ok {
		return additional
	}
	for _, alternative := range s.AnyOf {
		if p := property(registry, alternative, name); p != nil {
			return p
		}
	}
	return nil
}

func resolve(registry huma.Registry, s *huma.Schema) *huma.Schema {
	for s.Ref != "" {
		s = registry.SchemaFromRef(s.Ref)
	}
	return s
}
